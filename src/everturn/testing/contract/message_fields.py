"""Clauses of what a message carries beside its words: tool calls, ids, contents that are no text, values of all types.

A field is only judged where returned messages have it. What cannot be stored as it is may be refused, never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from everturn.testing.contract.sequential import TOOL_CALL, session_with_turns
from everturn.testing.kit.clause import ClauseRegistry, NotOffered
from everturn.testing.kit.equality import comes_back
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import ReadMessage, SentMessage
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("edge", since=2)


def stored_or_refused(kit: Kit, store: Instance, session: str, sent: SentMessage, name: str) -> ReadMessage | None:
    """Store one message. Returns it as it came back; None if it was refused, and then nothing may be there."""
    refused = not store.take_unrecorded(Step("append", session, ((sent,),))).ok
    read = store.take_unrecorded(Step("read", session))
    if refused:
        kit.check(read.ok and read.value == [], f"{name} was refused, and yet a read gives {read}", session=session)
        return None
    kit.check(read.ok, f"{name} was stored, and reading it raised {read.fault}", session=session)
    kit.check(len(read.value) == 1, f"{name} was stored, and {len(read.value)} messages came back", session=session)
    found: ReadMessage = read.value[0]
    return found


def none_is_refused(kept: Sequence[object], what: str) -> None:
    """Raise NotOffered if nothing was kept: a store may refuse what it cannot keep."""
    if not kept:
        raise NotOffered(f"{what} are refused loudly")


ODD_CONTENTS: dict[str, Any] = {
    "text": "plain text",  # so that something is accepted
    "None": None,
    "no parts": [],
    "one part": [{"type": "text", "text": "hello"}],
    "several parts": [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
        {"type": "text", "text": ""},
    ],
    "strings": ["a", "b"],
    "a mapping": {"answer": 42, "why": None},
    "a number": 12,
    "a truth": True,
    "bytes": b"\x00\xff",
}


@registry.clause(
    "odd-contents",
    "A content that is None, a list of parts or no text at all comes back as it was, or is refused.",
    incident="str(content): a question with a picture comes back as the text \"[{'type': 'image_url', ...\".",
    needs=["fields"],
)
def odd_contents(kit: Kit) -> None:
    store = kit.borrow()
    refused = 0
    for name, content in ODD_CONTENTS.items():
        session = kit.session()
        found = stored_or_refused(kit, store, session, SentMessage("user", content), f"content that is {name}")
        refused += found is None
        if found is not None:
            kit.check(
                comes_back(content, found.content),
                f"content that is {name} went in as {content!r:.80} and came back as {found.content!r:.80}",
                session=session,
            )
    kit.notes.append(f"{len(ODD_CONTENTS) - refused} of {len(ODD_CONTENTS)} came back, {refused} were refused loudly")


ODD_VALUES: dict[str, Any] = {
    "text": "plain text",  # so that something is accepted
    "a moment": datetime(2026, 11, 18, 2, 0, 0, 123456, tzinfo=UTC),
    "a moment elsewhere": datetime(2026, 3, 29, 2, 30, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    "a moment without a zone": datetime(2026, 11, 18, 2, 0),  # noqa: DTZ001 - that is what is stored
    "a day": date(2026, 2, 28),
    "a UUID": UUID("12345678-1234-5678-1234-567812345678"),
    "bytes": b"\x00\xff\x80",
    "a decimal": Decimal("0.10"),
    "floats": [0.1 + 0.2, 1 / 3, 1e22, 2**0.5 * 1e300, 123456789.123456789, -1e-7],
}


@registry.clause(
    "odd-values",
    "Dates, UUIDs, bytes, decimals and floats come back equal, to the last digit, or are refused.",
    incident="json.dumps(default=str): a date goes in and a string comes out, and the tool that compares them raises.",
    needs=["fields"],
)
def odd_values(kit: Kit) -> None:
    store = kit.borrow()
    judged = refused = 0
    for name, value in ODD_VALUES.items():
        session = kit.session()
        sent = SentMessage("user", name, {"metadata": {"value": value}})
        found = stored_or_refused(kit, store, session, sent, name)
        refused += found is None
        if found is not None and "metadata" in found.fields:
            judged += 1
            came_back = found.fields["metadata"]
            kit.check(
                comes_back({"value": value}, came_back),
                f"{name} went in as {value!r:.80} and came back as {came_back!r:.80}",
                session=session,
            )
    if not judged and not refused:
        raise NotOffered("returned messages carry no metadata")
    kit.notes.append(f"{judged} of {len(ODD_VALUES)} came back, {refused} were refused loudly")


CALLS: tuple[dict[str, Any], ...] = (
    TOOL_CALL,
    {"name": "look_up", "args": {}, "id": "call-2", "type": "tool_call"},
    {"name": "écrire", "args": {"text": "a\n\"b\" é 😀", "deep": {"list": [1, None, {"x": 0.1}]}}, "id": "call-3",
     "type": "tool_call"},
)  # fmt: skip


@registry.clause(
    "several-tool-calls",
    "Several tool calls of one message come back in order, each with its arguments and id, and so do their results.",
    incident="Only the first tool call of a message is kept: the second result answers a call that nobody made.",
    needs=["fields"],
)
def several_tool_calls(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    asked = SentMessage("assistant", "", {"tool_calls": list(CALLS)})
    results = [SentMessage("tool", f"result {call['id']}", {"tool_call_id": call["id"]}) for call in reversed(CALLS)]
    outcomes = [store.take_unrecorded(Step("append", session, ((sent,),))) for sent in (asked, *results)]
    read = store.take_unrecorded(Step("read", session))
    kit.check(read.ok, f"reading a message with {len(CALLS)} tool calls raised {read.fault}", session=session)
    kept = [sent for sent, outcome in zip((asked, *results), outcomes, strict=True) if outcome.ok]
    none_is_refused(kept, "messages with tool calls, and results of tools,")
    kit.same(read.value, [kept], "a message with tool calls and their results were stored", session=session)
    for sent, seen in zip(kept, read.value, strict=True):
        for name, value in sent.fields.items():
            if name in seen.fields:
                kit.check(
                    seen.fields[name] == value,
                    f"{name} was {value!r:.200} and came back as {seen.fields[name]!r:.200}",
                    session=session,
                )


@registry.clause(
    "equal-ids",
    "Messages that carry the same id are all kept, or the later ones are refused.",
    incident="LiteLLM gives every item the id __fake_id__: a store that upserts by it keeps the last answer alone.",
    needs=["fields"],
)
def equal_ids(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    kept = []
    for number in range(3):
        sent = SentMessage("assistant", f"answer {number}", {"id": "__fake_id__"})
        if store.take_unrecorded(Step("append", session, ((sent,),))).ok:
            kept.append(sent)
    none_is_refused(kept, "messages with an id")
    read = store.take_unrecorded(Step("read", session))
    kit.check(read.ok, f"reading messages with one id raised {read.fault}", session=session)
    kit.same(read.value, [kept], f"{len(kept)} messages with one id were stored", session=session)


@registry.clause(
    "messages-are-copies",
    "A message that a caller gave or got is the caller's: what is changed in it later is changed for nobody else.",
    incident="A redaction for the log, made in place on what was read: from then on the model sees the redacted text.",
)
def messages_are_copies(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit, 2)
    fields = {"tool_calls": [deepcopy(TOOL_CALL)]} if kit.offers("fields") else {}
    plain = kit.turn()
    turn = tuple(SentMessage(sent.role, sent.content, fields if sent.role == "assistant" else {}) for sent in plain)
    if not store.take_unrecorded(Step("append", kit.session(), (turn,))).ok:
        turn = plain  # it refuses tool calls
    store.call("append_and_change", session, turn)
    _unchanged(kit, store.read(session), [*turns, turn], "the messages that were handed over were changed later")
    store.call("read_and_change", session)
    _unchanged(kit, store.read(session), [*turns, turn], "the messages that were returned were changed")


def _unchanged(kit: Kit, found: list[ReadMessage], turns: list[tuple[SentMessage, ...]], story: str) -> None:
    kit.same(found, turns, story, session="")
    for sent, seen in zip([sent for turn in turns for sent in turn], found, strict=True):
        for name, value in sent.fields.items():
            if name in seen.fields:
                kit.check(seen.fields[name] == value, f"{story}: {name} is {seen.fields[name]!r:.200}")


ROLES = ("tool", "developer", "function", "critic")


@registry.clause(
    "other-roles",
    "A role beside user, assistant and system comes back as it was, or is refused.",
    incident="roles.get(role, 'user'): what a tool returned is read as the user's words, orders to the model included.",
    needs=["roles"],
)
def other_roles(kit: Kit) -> None:
    if kit.environment.offer.message:
        raise NotOffered("the factory makes the messages, and need not know these roles")
    store, kept = kit.borrow(), []
    for role in ROLES:
        fields = {"tool_call_id": "call-1"} if role == "tool" and kit.offers("fields") else {}
        session, sent = kit.session(), SentMessage(role, "some words", fields)
        found = stored_or_refused(kit, store, session, sent, f"a message of the role {role!r}")
        if found is not None:
            kept.append(role)
            kit.check(found.role == role, f"the role {role!r} came back as {found.role!r}", session=session)
    none_is_refused(kept, f"messages of the roles {', '.join(ROLES)}")


@registry.clause(
    "metadata-names",
    "Metadata with names like those of a message's own fields changes none of these, and comes back as it was.",
    incident="{**message, **metadata}: a web page with the metadata role=system speaks to the model as its owner.",
    needs=["fields"],
)
def metadata_names(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    metadata = {name: f"of the metadata: {name}" for name in OWN_NAMES}
    sent = SentMessage("user", "the words", {"metadata": metadata})
    found = stored_or_refused(kit, store, session, sent, "metadata with names of the message's own")
    none_is_refused([found] * (found is not None), "messages with such metadata")
    assert found is not None  # noqa: S101 - for mypy
    kit.same([found], [(sent,)], "its metadata has a role and a content, too", session=session)
    kit.check(
        "metadata" not in found.fields or comes_back(metadata, found.fields["metadata"]),
        f"metadata with names of the message's own came back as {found.fields.get('metadata')!r:.300}",
        session=session,
    )


OWN_NAMES = (
    *("role", "content", "type", "id", "name", "seq", "session", "session_id", "created_at", "timestamp", "ts"),
    *("tool_calls", "metadata", "extra", "version", "key", "text", "data", "kind", "message", "_id"),
)


NESTED: dict[str, Any] = {
    "plain": {"a": {"b": 1}},  # so that something is accepted
    "a dot in a name": {"a.b": 1, "a": {"b": 2}},
    "other marks in names": {"$set": {"a": 1}, "a/b": 1, "a__b": 2, "a:b": 3, "a[0]": 4, "": 5, "0": 6, "#": 7},
    "empty parts": {"mapping": {}, "list": [], "text": "", "nothing": None, "deep": {"in": [{}, []]}},
    "names that differ by case": {"Id": 1, "id": 2, "ID": 3},
    "lists of lists": {"rows": [[1, 2], [3], []], "mixed": [1, "1", True, None, 1.5]},
}


@registry.clause(
    "nested-metadata",
    "Nested metadata comes back nested as it was, whatever its names, empty parts included, or is refused.",
    incident="Metadata flattened into columns by dots: 'a.b' comes back as {'a': {'b': ...}}, and {} not at all.",
    needs=["fields"],
)
def nested_metadata(kit: Kit) -> None:
    store = kit.borrow()
    refused = 0
    for name, metadata in NESTED.items():
        session = kit.session()
        sent = SentMessage("user", "words", {"metadata": metadata})
        found = stored_or_refused(kit, store, session, sent, f"metadata with {name}")
        refused += found is None
        if found is not None and "metadata" in found.fields:
            came_back = found.fields["metadata"]
            kit.check(
                comes_back(metadata, came_back),
                f"metadata with {name} went in as {metadata!r:.100} and came back as {came_back!r:.100}",
                session=session,
            )
    kit.notes.append(f"{len(NESTED) - refused} of {len(NESTED)} were stored, {refused} were refused loudly")


ARGUMENTS = (
    *('{"order": 7}', '{"order":7,"a":1}', '{ "b" : 1.0,\n  "a" : [ ] }', '{"a":1,"a":2}', '{"text":"\\u00e9 \\/ é"}'),
    *("", "{}", '{"order":', "look up order 7", "[1]", "null", '{"n":12345678901234567890.10}'),
)


@registry.clause(
    "arguments-are-text",
    "The arguments of a tool call that are a text come back letter for letter, also if they are no JSON.",
    incident="Arguments parsed and written again: those cut off become {}, and a signature over the others is wrong.",
    needs=["fields"],
)
def arguments_are_text(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    calls = [
        {"id": f"call-{number}", "type": "function", "function": {"name": "look_up", "arguments": text}}
        for number, text in enumerate(ARGUMENTS)
    ]
    kept: list[SentMessage] = []
    for call in calls:
        sent = SentMessage("assistant", f"asks {call['id']}", {"tool_calls": [call]})
        if store.take_unrecorded(Step("append", session, ((sent,),))).ok:
            kept.append(sent)
    none_is_refused(kept, "messages with tool calls")
    read = store.take_unrecorded(Step("read", session))
    kit.check(read.ok, f"reading messages with tool calls raised {read.fault}", session=session)
    kit.same(read.value, [kept], "messages with tool calls were stored", session=session)
    for sent, seen in zip(kept, read.value, strict=True):
        if "tool_calls" in seen.fields:
            wanted, found = sent.fields["tool_calls"], seen.fields["tool_calls"]
            kit.check(found == wanted, f"{wanted!r:.200} came back as {found!r:.200}", session=session)
    if len(kept) < len(calls):
        kit.notes.append(f"{len(calls) - len(kept)} of {len(calls)} were refused loudly")
