"""The contract: every promise that a memory store can be held to, by layer. docs/contract.md is made from it."""

from __future__ import annotations

from everturn.testing.contract import (
    checkpoints,
    concurrency,
    crash,
    edge,
    expiry,
    faults,
    isolation,
    persistence,
    races,
    removal,
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
    ]
)
