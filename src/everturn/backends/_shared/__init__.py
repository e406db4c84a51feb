"""Pieces that several backends share. None of them knows a driver.

options.py            options of `open`, read and checked
paging.py             pages of sessions, their tokens, and prefixes as bounds
verification.py       checks of a stored session, and the errors for damage
server_warnings.py    findings about a server or file, for warnings and `doctor`
server_clock.py       estimate of a server's clock from its replies
steady_clock.py       the clock that decides what has expired, whatever the wall clock does
connection_watch.py   events of connections that fail and come back
read_only.py          refuses everything that writes
thread_pool.py        a bounded pool of connections, lent to one thread at a time
deadline_watch.py     one timer of an event loop for all changes that wait
"""
