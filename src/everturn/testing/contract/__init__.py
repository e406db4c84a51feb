"""The contract: every promise of a memory store, as clauses. `grep -rn '"clause-id"' .` here finds a clause.

sequential.py    one caller: order, contents, keys, versions
removal.py       clear, replace, pop, trim
snapshots.py     save, rollback, undo
isolation.py     sessions with similar ids
checkpoints.py   LangGraph's checkpointers
races.py         every two operations at once, at every point (ids like append-trim)
concurrency.py   many callers in random rounds
persistence.py   other processes, reopening, os.fork
edge.py          unusual contents, sizes, ids; expiry.py time to live
faults.py        servers, disks and files that fail
crash.py         kill -9 and power loss
compaction.py    summaries that take the place of turns
resume.py        leases and effects: one worker at a time, and what it does in the world is done once
docs_page.py     docs/contract.md, made from the clauses (`python -m everturn.testing.contract`)
"""

from __future__ import annotations

from everturn.testing.contract import (
    checkpoints,
    compaction,
    concurrency,
    crash,
    edge,
    expiry,
    faults,
    isolation,
    persistence,
    races,
    removal,
    resume,
    sequential,
    snapshots,
)
from everturn.testing.kit.clause import Clause, collected

CLAUSES: tuple[Clause, ...] = collected(
    [
        *(sequential, removal, snapshots, isolation, checkpoints),
        *(races, concurrency),
        persistence,
        *(edge, expiry),
        faults,
        crash,
        compaction,
        resume,
    ]
)
