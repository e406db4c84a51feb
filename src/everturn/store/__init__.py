"""The two stores that users call, and the operations behind their methods.

sync.py         MemoryStore: every method blocks
aio.py          AsyncMemoryStore: every method is awaited
operations.py   Operations: the methods of both, as one class
changes.py      the methods that change a session
trim.py         trim, a change that reads before it writes
fold.py         fold, the other one, with a model in between
context.py      get_context: the newest turns that fit, and what stands before them
key_lookup.py   get_turn: the turn that was written with a key
pages.py        pages of a history, newest first
reads.py        the methods that read
entry_reader.py rows of entries, decoded as a backend hands them over
maintenance.py  clear_all, erase, compact, verify: long work in steps
arguments.py    checks of arguments
retries.py      one request, sent until it is answered or its time is up
outcomes.py     a backend's answer as the receipt or the error that callers see
"""
