"""The two stores that users call, and the operations behind their methods.

sync.py         MemoryStore: every method blocks
aio.py          AsyncMemoryStore: every method is awaited
operations.py   Operations: the methods of both, as one class
changes.py      the methods that change a session
trim.py         trim, the change that reads before it writes
reads.py        the methods that read
entry_reader.py rows of entries, decoded as a backend hands them over
maintenance.py  clear_all, erase, compact, verify: long work in steps
arguments.py    checks of arguments
retries.py      one request, sent until it is answered or its time is up
refusals.py     a backend's refusal as the error that callers see
"""
