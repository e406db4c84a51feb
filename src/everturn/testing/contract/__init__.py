"""The contract: every promise that a memory store can be held to, by layer. docs/contract.md is made from it."""

from __future__ import annotations

from everturn.testing.clauses import Clause, collected
from everturn.testing.contract import (
    checkpoints,
    concurrency,
    crash,
    edge,
    expiry,
    faults,
    isolation,
    pairs,
    persistence,
    removal,
    sequential,
    snapshots,
)

CLAUSES: tuple[Clause, ...] = collected(
    [
        *(sequential, removal, snapshots, isolation, checkpoints),
        *(pairs, concurrency),
        persistence,
        *(edge, expiry),
        faults,
        crash,
    ]
)
