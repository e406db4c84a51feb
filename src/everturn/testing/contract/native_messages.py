"""Clauses of what only a framework has: its own kinds of messages, all of a checkpoint, state that sessions share.

Whatever was handed over comes back; a store may add to it. What cannot be stored may be refused, as anywhere.
"""

from __future__ import annotations

from typing import Any

from everturn.testing.kit.clause import ClauseRegistry, NotOffered
from everturn.testing.kit.equality import comes_back
from everturn.testing.kit.kit import Kit
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("edge", since=2)
_ITS_OWN = frozenset({"timestamp"})  # given by the store in some frameworks


def missing(sent: Any, found: Any, path: str = "") -> str:
    """Name the first part of `sent` that is not in `found`, or differs there; empty if all is. What is empty in `sent`
    may be left out, and `found` may have more."""
    if sent is None or sent in ("", [], {}):
        return ""
    if isinstance(sent, dict) and isinstance(found, dict):
        parts = ((name, value) for name, value in sent.items() if name not in _ITS_OWN)
        return next(
            (story for name, value in parts if (story := missing(value, found.get(name), f"{path}.{name}"))), ""
        )
    if isinstance(sent, list) and isinstance(found, list) and len(sent) == len(found):
        pairs = enumerate(zip(sent, found, strict=True))
        return next((story for place, (a, b) in pairs if (story := missing(a, b, f"{path}[{place}]"))), "")
    return "" if comes_back(sent, found) else f"{path.lstrip('.')} was {sent!r:.100} and came back as {found!r:.100}"


@registry.clause(
    "native-messages",
    "Messages of the framework come back with all that they had: calls, results, reasoning, parts, ids, errors.",
    incident="A history of roles and texts: the call of a tool is dropped, and the model's API refuses its result.",
    needs=["native_messages"],
)
def native_messages(kit: Kit) -> None:
    store = kit.borrow()
    names = store.call("native_names")
    refused = []
    for name in names:
        session = kit.session()
        outcome = store.take_unrecorded(Step("append_native", session, (name,)))
        found = store.take_unrecorded(Step("read_native", session))
        if not outcome.ok:
            refused.append(name)
            continue
        kit.check(found.ok, f"{name} was stored, and reading it raised {found.fault}", session=session)
        kit.check(
            len(found.value) == len(outcome.value),
            f"{name}: {len(outcome.value)} messages were stored, {len(found.value)} came back",
            session=session,
        )
        story = missing(outcome.value, found.value)
        kit.check(not story, f"{name}: {story}", session=session)
    if len(refused) == len(names):
        raise NotOffered(f"all of these were refused: {', '.join(refused)}")
    if refused:
        kit.notes.append(f"refused loudly: {', '.join(refused)}")


@registry.clause(
    "checkpoint-parts",
    "All of a checkpoint comes back: every channel, the versions, what nodes have seen, and its metadata.",
    incident="A saver that stores the messages alone: after a restart the graph has lost its plan, and begins again.",
    needs=["subgraphs"],
)
def checkpoint_parts(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    outcome = store.take_unrecorded(Step("put_parts", session))
    if not outcome.ok:
        raise NotOffered(f"a checkpoint with several channels was refused: {outcome.fault}")
    found = store.take_unrecorded(Step("parts", session))
    kit.check(found.ok, f"a checkpoint was stored, and getting it raised {found.fault}", session=session)
    story = missing(outcome.value, found.value)
    kit.check(not story, story, session=session)


@registry.clause(
    "state-scopes",
    "State with the prefix user: is shared by a user's sessions, app: by all of an application; temp: is not kept.",
    incident="A user's language is in the state of one session: in the next one the agent asks for it again.",
    needs=["state_scopes"],
)
def state_scopes(kit: Kit) -> None:
    store, first, second = kit.borrow(), kit.session(), kit.session()
    app = f"kit_{first}"
    changes = {"user:language": "de", "app:flag": 1, "temp:step": 5, "own": "a"}
    store.call("change_state_as", first, app, "ada", kit.turn(), changes)
    for session, user in ((second, "ada"), (second, "bob")):
        store.call("append_as", session, app, user, kit.turn())
    shared = {"app:flag": 1}
    for who, session, user, wanted in (
        ("the session itself", first, "ada", {**shared, "user:language": "de", "own": "a"}),
        ("another session of the user", second, "ada", {**shared, "user:language": "de"}),
        ("a session of another user", second, "bob", shared),
    ):
        found = store.call("state_as", session, app, user) or {}
        kept = {name: found[name] for name in changes if name in found}
        kit.check(kept == wanted, f"{who} has {kept} of the state, and should have {wanted}", session=session)
