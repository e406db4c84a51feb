"""Clauses for one caller at a time: order, contents, keys, versions. Removal, snapshots and isolation have modules."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.testing.kit.clause import ClauseRegistry, NotOffered, StoreRaised
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("sequential")
SIMILAR_KEYS = (
    *(
        "key",
        "Key",
        "KEY",
        "key ",
        " key",
        "key\n",
        "k",
        "key:1",
        "key:10",
        "key%",
        "key_",
        "1",
        "01",
        "1.0",
        "caf\u00e9",
    ),
    *(f"{'k' * length}{end}" for length in (32, 36, 64, 128, 255) for end in "ab"),
    "cafe\u0301",
)


def session_with_turns(kit: Kit, turns: int = 1) -> tuple[Instance, str, list[tuple[SentMessage, ...]]]:
    """Make a session with turns. Returns the instance, the session and the turns."""
    store, session, stored = kit.borrow(), kit.session(), kit.turns(turns)
    for turn in stored:
        store.append(session, turn)
    return store, session, stored


# --- store and retrieve ----------------------------------------------------------------------------------------------


@registry.clause(
    "store-and-retrieve",
    "What was stored comes back: the same roles, the same words.",
    incident="The bot asks for the order number right after it was given.",
)
def store_and_retrieve(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit)
    kit.same(store.read(session), turns, "one turn was stored", session=session)


@registry.clause(
    "order",
    "Messages come back in the order in which they were stored, however quickly they came.",
    incident="Google ADK 2.13.0: events with equal timestamps sort by a random id.",
)
def order(kit: Kit) -> None:
    store, session, turns = kit.borrow(), kit.session(), kit.turns(30)
    for outcome in store.run(*(Step("append", session, (turn,)) for turn in turns)):
        kit.check(outcome.ok, f"a turn was refused: {outcome.fault}", session=session)
    kit.same(store.read(session), turns, "30 turns were stored one after the other", session=session)


@registry.clause(
    "roles",
    "A message keeps its role: user, assistant, system.",
    incident="A summary stored as a system message comes back as the user's words, and the model obeys it.",
    needs=["roles"],
)
def roles(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    turns = [(SentMessage(role, f"said by {role}"),) for role in ("system", "user", "assistant", "user")]
    for turn in turns:
        store.append(session, turn)
    kit.same(store.read(session), turns, "a message of each role was stored", session=session)


TOOL_CALL = {"name": "look_up", "args": {"order": 1234, "exact": True}, "id": "call-1", "type": "tool_call"}


@registry.clause(
    "fields",
    "A field that returned messages carry (name, id, tool calls, metadata) comes back as it was stored.",
    incident="langchain-redis 0.2.6 drops tool_calls, id and name: the model sees a tool result that nobody asked for.",
    needs=["fields"],
)
def fields(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    stored: tuple[SentMessage, ...] = (
        SentMessage(
            "user", "where is it?", {"name": "ada", "id": "m-1", "metadata": {"score": 0.5, "tags": ["a", None]}}
        ),
        SentMessage("assistant", "let me look", {"id": "m-2", "tool_calls": [TOOL_CALL]}),
        SentMessage("tool", "on its way", {"id": "m-3", "tool_call_id": "call-1"}),
    )
    turns = [stored] if kit.offers("lists") else [(sent,) for sent in stored]
    if not all(outcome.ok for outcome in store.run(*(Step("append", session, (turn,)) for turn in turns))):
        session, stored = kit.session(), _fields_alone(kit, store, stored)
        store.append(session, stored)
    found = store.read(session)
    kit.same(found, [stored], "three messages with fields were stored", session=session)
    for sent, seen in zip(stored, found, strict=True):
        for name, value in sent.fields.items():
            if name in seen.fields:
                kit.check(
                    seen.fields[name] == value,
                    f"{name} of {sent.content!r} was {value!r} and came back as {seen.fields[name]!r}",
                    session=session,
                )


def _fields_alone(kit: Kit, store: Instance, messages: Sequence[SentMessage]) -> tuple[SentMessage, ...]:
    """Leave out of messages the fields that the store refuses. Raises NotOffered if it refuses all of them."""
    kept: list[SentMessage] = []
    refused: set[str] = set()
    for sent in messages:
        fields = {}
        for name, value in sent.fields.items():
            alone = SentMessage(sent.role, sent.content, {name: value})
            if store.take_unrecorded(Step("append", kit.session(), ((alone,),))).ok:
                fields[name] = value
            else:
                refused.add(name)
        kept.append(SentMessage(sent.role, sent.content, fields))
    if not any(sent.fields for sent in kept):
        raise NotOffered(f"messages with any of these are refused: {', '.join(sorted(refused))}")
    kit.notes.append(f"refused loudly: {', '.join(sorted(refused))}")
    return tuple(sent for sent in kept if sent.fields)


@registry.clause(
    "empty-session",
    "A session that nothing was stored in reads as empty, and reading it makes nothing.",
    incident="A reader that creates what it looks for: every health check leaves an empty conversation behind.",
)
def empty_session(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    kit.same(store.read(session), [], "nothing was stored", session=session)
    kit.same(store.read(session), [], "nothing was stored, and it was read before", session=session)
    turn = kit.turn()
    store.append(session, turn)
    kit.same(store.read(session), [turn], "it was read when it was empty, then one turn was stored", session=session)


@registry.clause(
    "reading-changes-nothing",
    "Reading a session changes nothing in it, however often.",
    incident="A store that pops what it reads: the second prompt has no history.",
)
def reading_changes_nothing(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit, 5)
    for _ in range(4):
        kit.same(store.read(session), turns, "5 turns were stored, and it was read again", session=session)


@registry.clause(
    "returned-is-a-copy",
    "A list that a caller gave or got is the caller's: what happens to it later does not happen to the store.",
    incident="A prompt builder shortens the list it was given, and the conversation is shorter for everybody.",
)
def returned_is_a_copy(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit, 2)
    turn = kit.turn()
    store.call("append_and_spoil", session, turn)
    kit.same(store.read(session), [*turns, turn], "the list that was handed over was emptied later", session=session)
    store.call("read_and_spoil", session)
    kit.same(store.read(session), [*turns, turn], "the list that was returned was emptied", session=session)


@registry.clause(
    "repeated-call",
    "Without a key, a call that is repeated stores twice: nobody guesses what a caller meant.",
    incident="A store that drops what equals the last message: the user says yes twice, and it counts once.",
)
def repeated_call(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit)
    store.append(session, turns[0])
    kit.same(store.read(session), [turns[0], turns[0]], "the same turn was stored twice", session=session)


@registry.clause(
    "empty-turn",
    "A turn without messages changes nothing, or is refused.",
    incident="An empty list from a model that said nothing becomes a row that no reader can decode.",
    needs=["lists"],
)
def empty_turn(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit)
    store.take(Step("append", session, ((),)))
    kit.same(store.read(session), turns, "an empty turn was stored after one turn", session=session)
    other = kit.session()
    store.take(Step("append", other, ((),)))
    kit.same(store.read(other), [], "only an empty turn was stored", session=other)


@registry.clause(
    "twins",
    "What the awaited methods store, the blocking ones read, and the other way round.",
    incident="asave_context that writes to another table: half of the conversation is missing in each face.",
    needs=["twins"],
)
def twins(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit)
    awaited = kit.turn()
    step = Step("append_awaited", session, (awaited,))
    fault = store.take(step).fault
    if fault is None:
        turns.append(awaited)
    elif fault.kind == "NotImplementedError":  # a face that says of itself that it is none
        kit.notes.append(f"the awaited twin refuses: {fault}")
    else:
        raise StoreRaised(step, fault)
    kit.same(store.read(session), turns, "a turn was given to each face", session=session)


@registry.clause(
    "latest",
    "A read with a limit gives the latest messages, oldest of them first.",
    incident="A limit that takes from the wrong end: the prompt holds how the conversation began, and not where it is.",
    needs=["latest"],
)
def latest(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit, 5)
    messages = [sent for turn in turns for sent in turn]
    for most in (1, 2, len(messages) - 1, len(messages), len(messages) + 5):
        kit.same(
            store.call("latest", session, most),
            [messages[-most:]],
            f"the latest {most} were asked for",
            session=session,
        )


# --- keys and versions -----------------------------------------------------------------------------------------------


@registry.clause(
    "keyed-retry",
    "A retry with the same key stores nothing again.",
    incident="openai-agents-python#1699, adk-python#4506: a retry after a time-out appends the turn twice.",
    needs=["key"],
)
def keyed_retry(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit)
    turn, later = kit.turn(), kit.turn()
    store.append(session, turn, key="request-1")
    store.append(session, turn, key="request-1")
    kit.same(store.read(session), [*turns, turn], "a turn was stored and retried with its key", session=session)
    store.append(session, later, key="request-2")
    store.append(session, turn, key="request-1")
    kit.same(store.read(session), [*turns, turn, later], "the same, after another turn", session=session)


@registry.clause(
    "keys-belong-to-sessions",
    "A key used in one session means nothing in another.",
    incident="Two users' clients number their requests from 1: the second user's first turn is taken for a retry.",
    needs=["key"],
)
def keys_belong_to_sessions(kit: Kit) -> None:
    store, one, other = kit.borrow(), kit.session(), kit.session()
    first, second = kit.turn(), kit.turn()
    store.append(one, first, key="1")
    store.append(other, second, key="1")
    kit.same(store.read(other), [second], "the key was used in another session before", session=other)


@registry.clause(
    "key-with-other-content",
    "A key that is used again with other content is refused, and changes nothing.",
    incident="A counter that starts anew after a deploy: new turns are taken for retries, and dropped in silence.",
    needs=["key"],
)
def key_with_other_content(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    turn, other = kit.turn(), kit.turn()
    store.append(session, turn, key="k")
    kit.refused(store, Step("append", session, (other,), {"key": "k"}), "its key was used with other content before")
    kit.same(store.read(session), [turn], "a turn was refused", session=session)


@registry.clause(
    "keys-are-exact",
    "Keys that differ by case, white space, their end or their Unicode form are different keys.",
    incident="A column of 64 characters: keys that begin with a URL are all one, and turns are taken for retries.",
    needs=["key"],
    since=2,
)
def keys_are_exact(kit: Kit) -> None:
    store, session, turn = kit.borrow(), kit.session(), kit.turn()
    # Always the same turn: a key that is taken for another one stores nothing, and nobody is told.
    steps = [Step("append", session, (turn,), {"key": key}) for key in SIMILAR_KEYS]
    stored = sum(store.take_unrecorded(step).ok for step in steps)
    found = store.take_unrecorded(Step("read", session))
    kit.check(found.ok, f"turns with {stored} keys were stored, and reading raised {found.fault}", session=session)
    story = f"a turn was stored with {stored} keys that are alike"
    kit.same(found.value, [turn] * stored, story, session=session)
    kit.notes.append(f"{stored} of {len(SIMILAR_KEYS)} keys were accepted")


@registry.clause(
    "expected-version",
    "A change that names a version which is no longer the current one is refused, and changes nothing.",
    incident="langgraph#8796: no compare-and-set, so whoever writes last decides what was said.",
    needs=["expected_version"],
)
def expected_version(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    first, second, late = kit.turn(), kit.turn(), kit.turn()
    version = store.append(session, first)
    store.append(session, second, expected_version=version)
    kit.refused(
        store, Step("append", session, (late,), {"expected_version": version}), "the session was at a later version"
    )
    kit.same(store.read(session), [first, second], "a turn was refused for its version", session=session)
