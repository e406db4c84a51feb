"""Copies of sessions from store to store, and exports to files and back.

copy_stores.py    everturn.copy and copy_async: the sessions of one store, into another
copy.py           one session: judged, brought in portions, made visible in one step, compared
lineage.py        whether one copy of a session became the other
compare.py        one session in two stores, compared
endpoint.py       the requests to the source and to the target, each within its store's time-out
protocol.py       what a backend offers to take part
session_lines.py  a session as lines: its parts and their checksums
import_checks.py  lines that come from outside, checked as arguments are
jsonl.py          the file format of export and import
"""
