"""The two stores that users call, and the operations behind their methods.

sync.py         MemoryStore: every method blocks
aio.py          AsyncMemoryStore: every method is awaited
operations.py   the methods of both, as one class
changes.py      the methods that change a session; trim.py the one that reads first
reads.py        the methods that read; entry_reader.py collects their rows
maintenance.py  verify, compact, erase, set_ttl: long work in steps
arguments.py    checks of arguments
retries.py      one request, sent until it is answered or its time is up
refusals.py     a backend's refusal as the error that callers see
"""
