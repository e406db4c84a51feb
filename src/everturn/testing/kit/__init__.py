"""The contract kit: runs clauses on a target and decides the status of each.

kit.py              Kit: the tools of a clause (places, instances, turns, a history to judge)
remote_instance.py  Instance: a store in a worker process, as a clause uses it
clause.py           a clause: its promise, its incident, its test
runner.py           runs clauses within a budget; selection.py chooses them; parallel.py runs several at once
environment.py      the environment of a run: worker processes, private servers, directories, time limits
shared_store.py     the place and instances that clauses share
target.py           the store under test, found by name in any process; store_urls.py makes factories of URLs
answers.py          which operations a target answered or refused during a clause
call_limits.py      seconds that a call may take before it counts as hanging
equality.py         whether a value came back: as JSON compares it
walks.py            random walks over all operations, compared with a model
scaffold.py         files for a project to start from; factory_text.py writes the factory of a store that was named
"""
