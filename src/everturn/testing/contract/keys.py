"""Clauses of keys and versions beyond the first retry: where names are joined, forgotten, or compared loosely.

sequential.py has keys and versions of one caller, sequences.py retries that come after a removal.
"""

from __future__ import annotations

from everturn.testing.contract.sequential import session_with_turns
from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("sequential", since=2)
SEPARATORS = (":", "/", "-", "_", "|", ".", "#", " ", "\0", "")
MANY, QUICK_MANY = 300, 60  # turns with keys that come in between, in the session and in others


@registry.clause(
    "session-and-key",
    "A session and a key are two names: two pairs are never one, wherever the session ends and the key begins.",
    incident='f"{session}:{key}" as one column: the key 1 of "team:7" is the key 7:1 of "team", and a turn is dropped.',
    needs=["key"],
)
def session_and_key(kit: Kit) -> None:
    store = kit.borrow()
    for separator in SEPARATORS:
        name, turn = kit.session(), kit.turn()
        pairs = ((f"{name}{separator}x", "1"), (name, f"x{separator}1"))
        stored = [
            session
            for session, key in pairs
            if store.take_unrecorded(Step("append", session, (turn,), {"key": key})).ok
        ]
        for session in stored:
            found = store.take_unrecorded(Step("read", session))
            kit.check(found.ok, f"reading {session!r} raised {found.fault}", session=session)
            story = f"the same turn was stored by {pairs[0]!r} and {pairs[1]!r}, each a session and a key"
            kit.same(found.value, [turn], story, session=session)


@registry.clause(
    "keys-are-kept",
    "A key is remembered however many other turns with keys came since, in its session and in others.",
    incident="The hundred latest keys of all users in one list: on a busy evening a retry after a minute stores twice.",
    needs=["key"],
)
def keys_are_kept(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    turn, others = kit.turn(), [kit.session() for _ in range(3)]
    store.append(session, turn, key="the first")
    many, between = QUICK_MANY if kit.quick else MANY, 0
    for number in range(many):
        if number >= QUICK_MANY and not kit.time_left():
            break
        for one in (session, others[number % len(others)]):
            store.append(one, kit.turn(), key=f"key {number}")
            between += 1
    before = store.read(session)
    store.append(session, turn, key="the first")
    after = store.read(session)
    story = f"a turn was retried with its key after {between} other turns with keys, and was stored again"
    kit.check(len(after) == len(before), story, session=session)
    kit.notes.append(f"{between} turns with keys in between")


@registry.clause(
    "version-exactly",
    "A version is compared exactly: 0, and versions that are still to come, are refused where another is current.",
    incident='"if expected_version:" takes 0 for none: of two workers that begin a conversation, both do.',
    needs=["expected_version"],
)
def version_exactly(kit: Kit) -> None:
    store, session, _ = session_with_turns(kit)
    version = store.append(session, kit.turn(), expected_version=store.append(session, kit.turn()))
    held = store.read(session)
    if not isinstance(version, int):
        return
    for other in {0, version - 1, version + 1, version + 1000} - {version}:
        story = f"the session was at version {version}, and {other} was expected"
        kit.refused(store, Step("append", session, (kit.turn(),), {"expected_version": other}), story)
        kit.check(store.read(session) == held, f"a turn was refused, and something changed: {story}", session=session)
