"""Races between two calls of a store.

sweep.py            one call stopped at each of its points while another completes
random_rounds.py    writers and a reader that start together
slow_compaction.py  a compaction whose model waits while other calls complete
lost_leases.py      a worker that sleeps in a call while another takes its lease
breakpoints.py      a call stopped at a chosen point
"""
