"""The contract kit: runs clauses on a target and says what became of each.

kit.py           what a clause works with: places, instances in processes, turns, a history
clause.py        a clause: its promise, its incident, its test
runner.py        clauses within a budget, one status each; selection.py which; parallel.py several at once
environment.py   one run: its processes, private servers, directories, clock
shared_store.py  the place and instances that clauses share
target.py        the store under test, found by name in any process; store_urls.py those behind URLs
scaffold.py      a factory and a CI job for a project to start from
differences.py   expected and actual, in words
"""
