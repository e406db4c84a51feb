"""Pieces that several backends share. None of them knows a driver.

options.py            options of `open`, read and checked
paging.py             pages of sessions, their tokens, and prefixes as bounds
verification.py       damage: found in stored sessions, and said
server_warnings.py    settings of a server that risk turns, as values
server_clock.py       a server's clock as its replies tell it
thread_pool.py        a bounded number of things that threads lend each other
"""
