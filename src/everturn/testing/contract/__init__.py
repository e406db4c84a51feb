"""The contract: every promise of a memory store, as clauses. `grep -rn '"clause-id"' .` here finds a clause.

sequential.py    one caller: order, contents, keys, versions
removal.py       clear, replace, pop, trim
equal_contents.py equal words in several places, and what a removal leaves behind
snapshots.py     save, rollback, undo
keys.py          keys that are joined or forgotten, versions that are compared loosely
isolation.py     sessions with similar ids; isolation_of_parts.py their snapshots, undo and expiry
checkpoints.py   checkpointers: of LangGraph, and of workflows of Agent Framework
items.py         items in namespaces: stores of LangGraph
refusals.py      snapshots that are old
races.py         every two operations at once, at every point (ids like append-trim)
concurrency.py   many callers in random rounds
housekeeping.py  every so many appends a store tidies up: what others store meanwhile
pauses.py        workers that stop for an hour, locks of the dead, several instances in one process
pops.py          pop, replace and deletions at once, and stopped at every point
clocks.py        clocks that differ, step back, or pass midnight
persistence.py   other processes, reopening, os.fork
names.py         ids that a store's own encoding, columns or keys could take for one another
frameworks.py    LangGraph's subgraphs and pending writes, ADK's applications and state
framework_races.py the same at once, and stopped at every point
sequences.py     many operations in a row, compared with a model; retries and versions that come late
odd_texts.py     texts that look like a store's own; long texts that are not ASCII
message_fields.py tool calls, ids, contents that are no text, values of all types
native_messages.py what only a framework has: its kinds of messages, checkpoints, shared state
long_sessions.py every change on 101 messages and more; large_changes.py other calls in the middle of them
edge.py          unusual contents, sizes, ids; expiry.py time to live; expiry_of_parts.py of all that a session has
faults.py        servers that fail; file_faults.py disks and files that do
recovery.py      calls that come after a fault: late replies, restarts, dry pools, cancelled tasks
after_faults.py  an instance after a lock not had, a full disk, writes refused; refused calls beside others
leaks.py         handles, threads and memory after many calls and faults
crash.py         kill -9 and power loss
syncing.py       syncs that are missing, seen from outside
compaction.py    summaries that take the place of turns
resume.py        leases: one worker at a time; effects.py what it does in the world is done once
remedies.toml    what to change in a store that breaks a clause, in one line
docs_page.py     docs/contract.md, made from the clauses (`python -m everturn.testing.contract`)
"""

from __future__ import annotations

import tomllib
from importlib.resources import files

from everturn.testing.contract import (
    after_faults,
    checkpoints,
    clocks,
    compaction,
    concurrency,
    crash,
    edge,
    effects,
    equal_contents,
    expiry,
    expiry_of_parts,
    faults,
    file_faults,
    framework_races,
    frameworks,
    housekeeping,
    isolation,
    isolation_of_parts,
    items,
    keys,
    large_changes,
    leaks,
    long_sessions,
    message_fields,
    names,
    native_messages,
    odd_texts,
    pauses,
    persistence,
    pops,
    races,
    recovery,
    refusals,
    removal,
    resume,
    sequences,
    sequential,
    snapshots,
    syncing,
)
from everturn.testing.kit.clause import Clause, collected
from everturn.testing.results import CONTRACT_VERSION

CLAUSES: tuple[Clause, ...] = collected(
    [
        *(
            sequential,
            keys,
            removal,
            equal_contents,
            snapshots,
            sequences,
            isolation,
            isolation_of_parts,
            names,
            checkpoints,
            items,
            frameworks,
            refusals,
        ),
        *(races, pops, framework_races, concurrency, housekeeping, pauses, clocks),
        persistence,
        *(edge, odd_texts, message_fields, native_messages, long_sessions, large_changes, expiry, expiry_of_parts),
        *(faults, file_faults, recovery, after_faults, leaks),
        *(crash, syncing),
        compaction,
        *(resume, effects),
    ],
    tomllib.loads(files(__name__).joinpath("remedies.toml").read_text("utf-8")),
)


def clauses_of(version: str = CONTRACT_VERSION) -> tuple[Clause, ...]:
    """List the clauses of a version of the contract, one of results.CONTRACT_VERSIONS. A version keeps all its clauses
    for ever; a later one adds to them."""
    return tuple(clause for clause in CLAUSES if clause.since <= int(version))
