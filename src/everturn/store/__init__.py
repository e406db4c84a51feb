"""The two stores that users call, and the operations behind their methods.

sync.py            MemoryStore: every method blocks
aio.py             AsyncMemoryStore: every method is awaited
operations.py      Operations: the methods of both, as one class

Changes:

changes.py         turns, snapshots, rollback, undo, clear, TTL, fork
carried_summaries.py  summaries that a replace drops and hidden turns need: written again in the same request
trim.py            trim, a change that reads before it writes
fold.py            fold, the other one, with a model in between
leases.py          leases, and the objects that hold one; lease_holder.py a lease as a value that changes name;
                   worker_name.py the name of who holds it
effects.py         effects: begun, finished, failed, and `once` around them
facts.py           facts that sessions are found by
maintenance.py     clear_all, erase, compact, verify: long work in steps; erase_many.py erases many sessions

Reads:

reads.py           histories, tool calls, summaries, snapshots, sessions
context.py         get_context: the newest turns that fit, and the messages before them
key_lookup.py      get_turn: the turn that was written with a key
pages.py           pages of a history, newest first
entry_reader.py    rows of entries, decoded as a backend hands them over
healed_prompts.py  prompts that a model accepts
health.py          health: one look at the backend

What all of them use:

options.py         options that every store has, read and checked
arguments.py       checks of arguments
runtime.py         how a store waits: by blocking its thread, or for an event loop
change_sender.py   one change: its request, its call id, its answer
retries.py         one request, sent until it is answered or its time is up
outcomes.py        a backend's answer as the receipt or the error that callers see
own_thread.py      a function in a thread of its own, for the asynchronous store
observed.py        failures logged, calls measured; call_spans.py measures one call
"""
