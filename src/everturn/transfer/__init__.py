"""Copies of sessions from store to store, and exports to files and back.

copy_stores.py    everturn.copy and copy_async: the sessions of one store, into another
copy.py           CopyRun: each session is judged, read in portions, made visible in one step, compared
lineage.py        whether the target's session is an earlier state of the source's, and whether all rows came
compare.py        one session in two stores, compared
endpoint.py       the source or the target of a copy: requests within the time-out of its store
protocol.py       Portable: the operations of a backend that copies use
session_lines.py  the parts of a session, and their lines of JSON
import_checks.py  parts that come from a file, checked as arguments are
jsonl.py          export to a file and import from it
"""
