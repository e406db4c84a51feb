"""The pure functions of rules.py and codec.py against plain statements of what they should do."""

from __future__ import annotations

import datetime as dt
import math
from array import array
from enum import Enum
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn import ChatMessage, CorruptEntry, InvalidInput, Record, Summary, ToolCall
from everturn.core import codec, message_batches, paths, text_search, trimming
from everturn.core import tool_calls as tool_calls_rules
from everturn.core.branches import Branches
from everturn.core.trimming import Header
from tests.model.model_store import Stored, calls_of, results_of, trimmed

settings.register_profile("rules", max_examples=150, derandomize=True, deadline=None, database=None)
few = settings(settings.get_profile("rules"))
many = settings(settings.get_profile("rules"), max_examples=300)

# --- paths and ranges ------------------------------------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> list[int]:
    """For each seq from 1 on, the seq it follows; 0 is the beginning."""
    length = draw(st.integers(0, 25))
    return [draw(st.integers(0, seq - 1)) if draw(st.integers(0, 3)) == 0 else seq - 1 for seq in range(1, length + 1)]


def walk(parents: list[int], head: int) -> list[int]:
    seqs = []
    while head:
        seqs.append(head)
        head = parents[head - 1]
    return seqs[::-1]


def seqs_in(ranges: list[paths.Range]) -> list[int]:
    return [seq for first, last in ranges for seq in range(first, last + 1)]


@many
@given(parents=logs(), data=st.data())
def test_a_path_is_what_a_walk_from_parent_to_parent_finds(parents: list[int], data: st.DataObject) -> None:
    head = data.draw(st.integers(0, len(parents)))
    jumps = [(seq, after) for seq, after in enumerate(parents, 1) if after != seq - 1][::-1]
    found = paths.path(head, jumps)
    assert seqs_in(found) == walk(parents, head)
    assert all(first <= last for first, last in found)
    assert paths.path(head, [jump for jump in jumps if jump[0] <= head]) == found
    # A jump that only says what is so anyway changes nothing but how the path is cut into ranges.
    every = [(seq, after) for seq, after in enumerate(parents, 1)][::-1]
    assert seqs_in(paths.path(head, every)) == walk(parents, head)


@st.composite
def states_of(draw: st.DrawFn, parents: list[int]) -> paths.State:
    """A state of such a log: some of what leads to its head is hidden, but for what a trim kept."""
    head = draw(st.integers(0, len(parents)))
    floor = draw(st.one_of(st.integers(0, head), st.just(head)))
    hidden = [seq for seq in walk(parents, head) if seq <= floor]
    kept = draw(st.lists(st.sampled_from(hidden), unique=True)) if hidden else []
    return paths.State(head, draw(st.one_of(st.integers(0, floor), st.just(floor))), floor, tuple(sorted(kept)))


def shown_by(parents: list[int], state: paths.State) -> tuple[set[int], set[int]]:
    """The seqs that a state shows, and those that it shows if they are summaries."""
    path = walk(parents, state.head)
    whole = {seq for seq in path if seq > state.floor} | set(state.kept)
    return whole, {seq for seq in path if state.cleared < seq <= state.floor} - whole


def jumps_of(parents: list[int]) -> list[paths.Jump]:
    return [(seq, after) for seq, after in enumerate(parents, 1) if after != seq - 1][::-1]


@many
@given(parents=logs(), data=st.data())
def test_the_reach_of_states_is_what_each_of_them_shows(parents: list[int], data: st.DataObject) -> None:
    states = data.draw(st.lists(states_of(parents), max_size=6))
    found = paths.reach(states, jumps_of(parents))
    shown = [shown_by(parents, state) for state in states]
    whole = set().union(*(seqs for seqs, _ in shown))
    assert seqs_in(found.whole) == sorted(whole)
    assert seqs_in(found.summaries) == sorted(set().union(*(seqs for _, seqs in shown)) - whole)
    on_the_way = {seq for state in states for seq in walk(parents, state.head)}
    assert found.jumps == [jump for jump in jumps_of(parents) if jump[0] in on_the_way]


@many
@given(parents=logs(), data=st.data())
def test_a_state_is_out_of_reach_if_it_shows_what_others_do_not(parents: list[int], data: st.DataObject) -> None:
    roots = data.draw(st.lists(states_of(parents), max_size=4))
    states = data.draw(st.lists(states_of(parents), max_size=4))
    jumps = jumps_of(parents)
    needed = paths.reach(roots, jumps)
    whole, summaries = set(seqs_in(needed.whole)), set(seqs_in(needed.summaries))
    for state, is_out in zip(states, paths.out_of(needed, states, jumps), strict=True):
        shows, shows_summaries = shown_by(parents, state)
        assert is_out == bool(shows - whole or shows_summaries - whole - summaries)
        # The jumps on the way to a state are all that is needed to walk there.
        assert paths.path(state.head, paths.reach([state], jumps).jumps) == paths.path(state.head, jumps)


@many
@given(parents=logs(), data=st.data())
def test_questions_about_a_path_need_no_walk(parents: list[int], data: st.DataObject) -> None:
    log = Branches(jumps_of(parents))
    head, seq = (data.draw(st.integers(0, len(parents))) for _ in range(2))
    some = sorted(data.draw(st.sets(st.integers(1, len(parents) + 1))))
    path = walk(parents, head)
    assert log.nearest(head, seq) == max((one for one in path if one <= seq), default=0)
    assert log.tally(some)(head) == len(set(some).intersection(path))
    gaps = log.gaps(paths.merge([(one, one) for one in some]))
    assert gaps(head) == max((one for one in path if one not in some), default=0)


def test_the_way_to_a_far_ancestor_is_short() -> None:
    """A history whose every entry is a stretch of its own: 4,000 questions about its beginning take no time."""
    log = Branches([(seq, seq - 1) for seq in range(2, 4001)])
    steps = 0

    class Counted(list[int]):
        def __getitem__(self, at: Any) -> Any:
            nonlocal steps
            steps += 1
            return super().__getitem__(at)

    log.parents = Counted(log.parents)
    log._skips = Counted(log._skips)
    assert all(log.nearest(4000, seq) == seq for seq in range(1, 4000))
    assert steps < 4000 * 60


def test_the_reach_of_many_states_over_many_jumps_takes_no_product() -> None:
    """10,000 branches, each with a state of its own, and all of them once more: a product would take minutes."""
    jumps = [(seq, 1) for seq in range(10_001, 1, -1)]
    states = [paths.State(seq) for seq in range(1, 10_002)]
    assert paths.reach(states + states, jumps).whole == [(1, 10_001)]


ranges_of_any_kind = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 6)).map(lambda r: (r[0], r[0] + r[1])))
bounds = st.integers(0, 15)


@many
@given(ranges=ranges_of_any_kind, low=bounds, high=bounds)
def test_clip_keeps_what_lies_between(ranges: list[paths.Range], low: int, high: int) -> None:
    assert seqs_in(paths.clip(ranges, low, high)) == [seq for seq in seqs_in(ranges) if low <= seq <= high]


@many
@given(ranges=ranges_of_any_kind, low=bounds, high=bounds)
def test_a_clip_has_no_empty_or_inverted_ranges(ranges: list[paths.Range], low: int, high: int) -> None:
    assert all(first <= last for first, last in paths.clip(ranges, low, high))


@many
@given(ranges=ranges_of_any_kind)
def test_merge_is_the_same_set_in_the_fewest_ranges(ranges: list[paths.Range]) -> None:
    merged = paths.merge(ranges)
    assert seqs_in(merged) == sorted(set(seqs_in(ranges)))
    assert all(b[0] > a[1] + 1 for a, b in pairwise(merged))


@many
@given(ranges=ranges_of_any_kind, others=ranges_of_any_kind)
def test_minus_is_the_difference_of_sets(ranges: list[paths.Range], others: list[paths.Range]) -> None:
    left = paths.minus(ranges, others)
    assert seqs_in(left) == sorted(set(seqs_in(ranges)) - set(seqs_in(others)))
    assert all(first <= last for first, last in left)


@few
@given(ranges=ranges_of_any_kind, seq=bounds)
def test_size_and_contains_count_and_find(ranges: list[paths.Range], seq: int) -> None:
    assert paths.size(ranges) == len(seqs_in(ranges))
    assert paths.contains(ranges, seq) == (seq in seqs_in(ranges))


# --- trimming: promise 14 --------------------------------------------------------------------------------------------

IDS = ("c1", "c2", "c3")


@st.composite
def conversations(draw: st.DrawFn) -> list[Stored]:
    """Turns of all kinds, with ids used again, results without calls and calls without results; some seqs are gone."""
    stored: list[Stored] = []
    seq = 0
    for _ in range(draw(st.integers(0, 7))):
        turn = seq + 1
        for _ in range(draw(st.integers(1, 4))):
            seq += 1
            stored.append(Stored(seq, turn, draw(entries_of_turns)))
    hidden = draw(st.sets(st.integers(1, max(seq, 1)), max_size=3))
    return [item for item in stored if item.seq not in hidden]


entries_of_turns = st.one_of(
    st.builds(ChatMessage, st.sampled_from(["user", "assistant", "system", "developer"]), st.text("x", max_size=4)),
    st.sampled_from(IDS).map(lambda name: ChatMessage("assistant", None, tool_calls=[{"id": name}])),
    st.sampled_from(IDS).map(lambda name: ChatMessage("assistant", [{"type": "tool_use", "id": name}])),
    st.sampled_from(IDS).map(lambda name: ChatMessage("tool", "r", tool_call_id=name)),
    st.sampled_from(IDS).map(lambda name: ChatMessage("user", [{"type": "tool_result", "tool_use_id": name}])),
    st.sampled_from([ToolCall("f", {}), Record("note", 1), Summary("s", (1.0,), (1, 1))]),
)
limits = st.none() | st.integers(0, 12)


def tokens(message: ChatMessage) -> int:
    return len(message.text) + 1


def headers_of(visible: list[Stored], count: Any) -> list[Header]:
    messages = [(msgspec.structs.replace(item.entry, seq=item.seq), item.turn) for item in visible]
    return [
        trimming.header(entry, turn, count(entry) if count else 0)
        if isinstance(entry, ChatMessage)
        else Header(entry.seq, turn, "other")
        for entry, turn in messages
    ]


@settings(many, max_examples=800)
@given(
    visible=conversations(),
    max_messages=limits,
    max_tokens=limits,
    keep_system=st.booleans(),
    floor=st.integers(0, 12),
)
def test_a_trim_keeps_the_most_whole_turns_that_fit_and_no_result_without_its_call(
    visible: list[Stored], max_messages: int | None, max_tokens: int | None, keep_system: bool, floor: int
) -> None:
    # Below the last cut only what it kept is visible: summaries and system messages.
    visible = [item for item in visible if item.seq > floor or stays_below(item.entry)]
    headers = headers_of(visible, tokens)
    cut = trimming.plan_trim(
        headers, floor=floor, max_messages=max_messages, max_tokens=max_tokens, keep_system=keep_system
    )
    hidden = trimmed(visible, max_messages, max_tokens, tokens, keep_system=keep_system)
    if cut is None:
        assert hidden == set()
        return
    messages = {item.seq for item in visible if isinstance(item.entry, ChatMessage)}
    by_cut = {
        item.seq
        for item in visible
        if item.seq <= cut.floor and item.seq not in cut.kept and not isinstance(item.entry, Summary)
    }
    assert by_cut == hidden
    assert cut.hidden == len(hidden & messages)
    assert cut.floor >= floor
    assert set(cut.kept) == {seq for seq in messages - hidden if seq <= cut.floor}
    assert list(cut.kept) == sorted(cut.kept)


def stays_below(entry: Any) -> bool:
    return isinstance(entry, Summary) or (isinstance(entry, ChatMessage) and entry.role in ("system", "developer"))


@few
@given(visible=conversations())
def test_a_trim_that_everything_fits_changes_nothing(visible: list[Stored]) -> None:
    headers = headers_of(visible, None)
    assert trimming.plan_trim(headers, floor=0, max_messages=100, max_tokens=None, keep_system=False) is None


def test_the_last_turn_stays_however_little_room_there_is() -> None:
    headers = [Header(1, 1, "message"), Header(2, 2, "message"), Header(3, 2, "message")]
    cut = trimming.plan_trim(headers, floor=0, max_messages=0, max_tokens=None, keep_system=True)
    assert cut == trimming.TrimCut(1, (), 1)


def test_an_id_used_again_belongs_to_the_nearest_call_before() -> None:
    call, result = frozenset({"call_0"}), frozenset({"call_0"})
    headers = [
        Header(1, 1, "message", calls=call),
        Header(2, 2, "message", results=result),
        Header(3, 2, "message", calls=call),
        Header(4, 3, "message", results=result),
    ]
    assert trimming.plan_trim(headers, floor=0, max_messages=3, max_tokens=None, keep_system=True) is None
    headers[1] = Header(2, 2, "message")
    assert trimming.plan_trim(headers, floor=0, max_messages=3, max_tokens=None, keep_system=True) == trimming.TrimCut(
        1, (), 1
    )


# --- tool calls and pairs --------------------------------------------------------------------------------------------

messages_only = conversations().map(
    lambda stored: [item.entry for item in stored if isinstance(item.entry, ChatMessage)]
)


@few
@given(messages=messages_only)
def test_calls_and_results_are_found_in_both_dialects(messages: list[ChatMessage]) -> None:
    assert [tool_calls_rules.calls_in(message) for message in messages] == [calls_of(message) for message in messages]
    assert [tool_calls_rules.results_in(message) for message in messages] == [
        results_of(message) for message in messages
    ]


def test_shapes_that_are_no_tool_calls_are_passed_over() -> None:
    odd = ChatMessage(
        "assistant", ["text", {"type": "tool_use"}, {"type": "tool_use", "id": 5}, {"type": "x", "id": "c"}]
    )
    assert tool_calls_rules.calls_in(odd) == set()
    assert tool_calls_rules.calls_in(ChatMessage("assistant", None, tool_calls=["x", {"id": None}, {}])) == set()
    assert (
        tool_calls_rules.results_in(
            ChatMessage("user", [{"type": "tool_result"}, {"type": "text", "tool_use_id": "c"}])
        )
        == set()
    )


@many
@given(messages=messages_only)
def test_heal_answers_every_unanswered_call_once_and_leaves_the_rest_as_it_is(messages: list[ChatMessage]) -> None:
    healed = tool_calls_rules.heal(messages)
    assert [message for message in healed if message.content != tool_calls_rules.HEALED] == messages
    owed = []
    for index, message in enumerate(messages):
        for call_id in calls_of(message):
            later = messages[index + 1 :]
            answered = next((i for i, m in enumerate(later) if call_id in results_of(m)), len(later))
            again = next((i for i, m in enumerate(later) if call_id in calls_of(m)), len(later))
            if answered == len(later) or again < answered:
                owed.append(call_id)
    added = [message for message in healed if message.content == tool_calls_rules.HEALED]
    assert sorted(message.tool_call_id or "" for message in added) == sorted(owed)
    assert all(message.role == "tool" and message.metadata == {"healed": True} for message in added)
    assert tool_calls_rules.heal(healed) == healed


@many
@given(messages=messages_only)
def test_a_healed_result_stands_behind_its_call_with_only_results_between(messages: list[ChatMessage]) -> None:
    healed = tool_calls_rules.heal(messages)
    for index, message in enumerate(healed):
        if message.content != tool_calls_rules.HEALED:
            continue
        before = index - 1
        while message.tool_call_id not in calls_of(healed[before]):
            assert results_of(healed[before]), "something else than results between a call and its healed result"
            before -= 1
            assert before >= 0
        following = healed[index + 1 : index + 2]
        assert all(m.content == tool_calls_rules.HEALED or not results_of(m) for m in following), (
            "it stands before real results"
        )


@few
@given(messages=messages_only)
def test_without_orphans_begins_with_something_else_than_a_result(messages: list[ChatMessage]) -> None:
    rest = tool_calls_rules.without_orphans(messages)
    assert messages[len(messages) - len(rest) :] == rest
    assert all(m.role == "tool" or results_of(m) for m in messages[: len(messages) - len(rest)])
    assert not rest or not (rest[0].role == "tool" or results_of(rest[0]))


def test_a_result_message_without_an_id_is_an_orphan_too() -> None:
    user = ChatMessage("user", "q")
    assert tool_calls_rules.without_orphans([ChatMessage("tool", "r"), user]) == [user]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ("", []),
        ("u", [("u0", "")]),
        ("a", [("", "a0")]),
        ("ua", [("u0", "a1")]),
        ("uaa", [("u0", "a2")]),
        ("uu", [("u0", ""), ("u1", "")]),
        ("uua", [("u0", ""), ("u1", "a2")]),
        ("aua", [("", "a0"), ("u1", "a2")]),
        ("suta", [("u1", "a3")]),
    ],
)
def test_pairs_of_what_was_asked_and_answered(roles: str, expected: list[tuple[str, str]]) -> None:
    names = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
    messages = [ChatMessage(names[role], f"{role}{index}") for index, role in enumerate(roles)]
    assert [(pair["human"], pair["ai"]) for pair in tool_calls_rules.pairs(messages)] == expected


def test_an_answer_without_words_does_not_replace_one_with_words() -> None:
    messages = [
        ChatMessage("user", "q"),
        ChatMessage("assistant", "so"),
        ChatMessage("assistant", None, tool_calls=[{"id": "c"}]),
    ]
    assert tool_calls_rules.pairs(messages) == [{"human": "q", "ai": "so"}]


@few
@given(text=st.text(max_size=8), part=st.text(min_size=1, max_size=3))
def test_mentions_looks_into_every_string_and_folds_ascii_only(text: str, part: str) -> None:
    found = text_search.fold(part) in text_search.fold(text)
    for entry in (
        ChatMessage("\x00", text),
        ChatMessage("\x00", [{"text": [text]}]),
        ChatMessage("\x00", "", extra={"x": {"y": text}}),
        ToolCall("\x00", [text]),
        ToolCall("\x00", None, result={"r": text}),
        Record("\x00", {"deep": [text]}),
        Summary(text, (1.0,), (0, 0)),
    ):
        if "\x00" not in part:
            assert text_search.mentions(entry, part) == found
    assert text_search.fold("AZaz") == "azaz"
    assert text_search.fold("ÄÖÜÅ\u212a") == "ÄÖÜÅ\u212a"


# --- codec: what goes in comes out -----------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"), max_size=12)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
LIMIT = 16 * 2**20
optional = st.none() | texts
EXTRA = st.none() | st.dictionaries(texts.map("x".__add__), json_values, min_size=1, max_size=2)
float32s = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def any_messages(draw: st.DrawFn) -> ChatMessage:
    tool_calls = draw(st.none() | st.lists(json_values, max_size=2))
    content = texts | st.lists(json_values, max_size=3)
    return ChatMessage(
        draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=64)),
        draw(content | st.none() if tool_calls else content),
        name=draw(optional),
        tool_calls=tool_calls,
        tool_call_id=draw(optional),
        id=draw(optional),
        metadata=draw(st.dictionaries(texts, json_values, max_size=3)),
        extra=draw(EXTRA),
    )


any_entries = st.one_of(
    any_messages(),
    st.builds(
        ToolCall,
        texts,
        json_values,
        call_id=optional,
        result=json_values,
        error=optional,
        duration=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        extra=EXTRA,
    ),
    st.builds(
        Summary,
        texts,
        st.lists(float32s, min_size=1, max_size=4).map(tuple),
        st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)),
        extra=EXTRA,
    ),
    st.builds(
        Record,
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=64).filter(
            lambda kind: kind not in ("message", "tool_call", "summary")
        ),
        json_values,
    ),
)


def identical(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down: 1 is not 1.0 and not True."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(identical(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return a == b


@many
@given(entry=any_entries)
def test_what_goes_in_comes_out(entry: Any) -> None:
    draft = codec.encode(entry, "entries[0]", LIMIT)
    back = codec.decode("s", draft.kind, 7, 1.5, draft.checksum, draft.body)
    assert back == entry
    assert (back.seq, back.created_at) == (7, 1.5)
    for name in entry.__struct_fields__:
        if name not in ("seq", "created_at"):
            assert identical(getattr(back, name), getattr(entry, name)), name
    assert codec.encode(back, "entries[0]", LIMIT) == draft  # what came out of a store is stored as the same bytes
    assert draft.dimension == (len(entry.embedding) if isinstance(entry, Summary) else None)


@few
@given(messages=st.lists(any_messages(), min_size=1, max_size=5), data=st.data())
def test_a_batch_decodes_as_each_would(messages: list[ChatMessage], data: st.DataObject) -> None:
    rows = []
    for seq, message in enumerate(messages, 1):
        draft = codec.encode(message, "m", LIMIT)
        rows.append((seq, float(seq), draft.checksum, draft.body))
    reader = message_batches.MessageReader("s")
    reader.take(rows)
    assert reader.messages == messages
    assert [message.seq for message in reader.messages] == list(range(1, len(messages) + 1))
    bad = data.draw(st.integers(0, len(rows) - 1))
    seq, created_at, check, body = rows[bad]
    position = data.draw(st.integers(0, len(body) - 1))
    rows[bad] = (seq, created_at, check, body[:position] + bytes([body[position] ^ 1]) + body[position + 1 :])
    with pytest.raises(CorruptEntry) as caught:
        message_batches.MessageReader("s").take(rows)
    assert (caught.value.session_id, caught.value.seq) == ("s", seq)
    skipping = message_batches.MessageReader("s", "skip")
    skipping.take(rows)
    assert [message.seq for message in skipping.messages] == [row[0] for row in rows if row[0] != seq]


@few
@given(entry=any_entries, data=st.data())
def test_a_changed_bit_or_kind_is_noticed(entry: Any, data: st.DataObject) -> None:
    draft = codec.encode(entry, "e", LIMIT)
    position = data.draw(st.integers(0, 8 * len(draft.body) - 1))
    body = bytearray(draft.body)
    body[position // 8] ^= 1 << position % 8
    for kind, damaged in ((draft.kind, bytes(body)), ("another", draft.body), ("message" * 2, draft.body)):
        if kind != draft.kind or damaged != draft.body:
            with pytest.raises(CorruptEntry):
                codec.decode("s", kind, 1, 0.0, draft.checksum, damaged)


@pytest.mark.parametrize("kind", ["message", "tool_call", "summary", "note"])
@pytest.mark.parametrize("body", [b"", b"nonsense", b"{", b"[1]", b"5", b'{"role":5}', b'{"text":1,"name":2}'])
def test_a_body_that_matches_its_checksum_and_is_no_entry_is_corrupt_too(kind: str, body: bytes) -> None:
    if kind == "note" and body not in (b"", b"nonsense", b"{"):
        assert isinstance(
            codec.decode("s", kind, 1, 0.0, codec.checksum(kind, body), body), Record
        )  # it may be any JSON
        return
    with pytest.raises(CorruptEntry):
        codec.decode("s", kind, 1, 0.0, codec.checksum(kind, body), body)


def test_fields_of_a_newer_version_come_back_in_extra() -> None:
    for kind, body in (
        ("message", b'{"role":"user","content":"x","mood":[1]}'),
        ("tool_call", b'{"name":"f","arguments":{},"mood":[1]}'),
        ("summary", b'{"text":"t","embedding":"AACAPw==","covers":[1,2],"mood":[1]}'),
    ):
        entry: Any = codec.decode("s", kind, 1, 0.0, codec.checksum(kind, body), body)
        assert entry.extra == {"mood": [1]}
        draft = codec.encode(entry, "e", LIMIT)
        assert codec.decode("s", kind, 1, 0.0, draft.checksum, draft.body) == entry


class Colour(str, Enum):  # noqa: UP042 - what callers have
    RED = "red"


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


SURROGATE = "a\ud800"
NOT_JSON: list[tuple[Any, str, str]] = [
    (math.nan, "", "NaN"),
    (math.inf, "", "Infinity"),
    (-math.inf, "", "-Infinity"),
    (b"x", "", "bytes"),
    (bytearray(b"x"), "", "bytearray"),
    ((1, 2), "", "tuple"),
    ({1}, "", "set"),
    (frozenset(), "", "frozenset"),
    (1j, "", "complex"),
    (dt.date(2020, 1, 1), "", "date"),
    (dt.timedelta(1), "", "timedelta"),
    (object(), "", "object"),
    (array("f", [1.0]), "", "array"),
    (2**20_000, "", "bits"),
    (-(2**20_000), "", "bits"),
    (SURROGATE, "", "U\\+D800"),
    ([1, {"x": math.nan}], "[1].x", "NaN"),
    ({"k": [(1,)]}, ".k[0]", "tuple"),
    ({1: 2}, "", "key"),
    ({None: 2}, "", "key"),
    ({SURROGATE: 2}, None, "D800"),
    (nested(201), None, "200"),
]


@pytest.mark.parametrize(("value", "where", "what"), NOT_JSON, ids=[f"{i}-{row[2]}" for i, row in enumerate(NOT_JSON)])
@pytest.mark.parametrize(
    ("place", "make"),
    [
        (".metadata.v", lambda value: ChatMessage("user", "x", metadata={"v": value})),
        (".content[0]", lambda value: ChatMessage("user", [value])),
        (".tool_calls[0]", lambda value: ChatMessage("user", "x", tool_calls=[value])),
        (".extra.v", lambda value: ChatMessage("user", "x", extra={"v": value})),
        (".arguments", lambda value: ToolCall("f", value)),
        (".result", lambda value: ToolCall("f", {}, result=value)),
        (".extra.v", lambda value: ToolCall("f", {}, extra={"v": value})),
        (".extra.v", lambda value: Summary("s", (1.0,), (1, 1), extra={"v": value})),
        (".body", lambda value: Record("note", value)),
    ],
)
def test_what_would_not_come_back_is_refused_with_its_path(
    place: str, make: Any, value: Any, where: str | None, what: str
) -> None:
    with pytest.raises(InvalidInput, match=what) as caught:
        codec.encode(make(value), "messages[2]", LIMIT)
    if where is not None:
        assert caught.value.path == f"messages[2]{place}{where}"
    str(caught.value).encode()  # the error itself can be printed


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        (ChatMessage("", "x"), "e.role"),
        (ChatMessage("r" * 65, "x"), "e.role"),
        (ChatMessage(5, "x"), "e.role"),
        (ChatMessage(SURROGATE, "x"), "e.role"),
        (ChatMessage("user", None), "e.content"),
        (ChatMessage("user", None, tool_calls=[]), "e.content"),
        (ChatMessage("user", 5), "e.content"),
        (ChatMessage("user", {"a": 1}), "e.content"),
        (ChatMessage("user", ("a",)), "e.content"),
        (ChatMessage("user", b"x"), "e.content"),
        (ChatMessage("user", SURROGATE), "e.content"),
        (ChatMessage("user", "x", name=5), "e.name"),
        (ChatMessage("user", "x", id=5), "e.id"),
        (ChatMessage("user", "x", tool_call_id=b""), "e.tool_call_id"),
        (ChatMessage("user", "x", tool_calls=({},)), "e.tool_calls"),
        (ChatMessage("user", "x", tool_calls={}), "e.tool_calls"),
        (ChatMessage("user", "x", metadata=None), "e.metadata"),
        (ChatMessage("user", "x", metadata=[]), "e.metadata"),
        (ChatMessage("user", "x", metadata=[("a", 1)]), "e.metadata"),
        (ChatMessage("user", "x", extra={"role": "y"}), "e.extra.role"),
        (ChatMessage("user", "x", extra={"!seq": 1}), "e.extra.!seq"),
        ({"role": "user"}, "e.content"),
        ({"content": "x"}, "e.role"),
        (ToolCall(None, {}), "e.name"),
        (ToolCall("f", {}, call_id=1), "e.call_id"),
        (ToolCall("f", {}, error=1), "e.error"),
        (ToolCall("f", {}, duration="1"), "e.duration"),
        (ToolCall("f", {}, duration=True), "e.duration"),
        (ToolCall("f", {}, duration=math.nan), "e.duration"),
        (ToolCall("f", {}, extra={"name": 1}), "e.extra.name"),
        (Summary(None, (1.0,), (1, 1)), "e.text"),
        (Summary("s", (), (1, 1)), "e.embedding"),
        (Summary("s", "1", (1, 1)), "e.embedding"),
        (Summary("s", b"1234", (1, 1)), "e.embedding"),
        (Summary("s", None, (1, 1)), "e.embedding"),
        (Summary("s", ["x"], (1, 1)), "e.embedding"),
        (Summary("s", [1.0, math.nan], (1, 1)), "e.embedding[1]"),
        (Summary("s", [1e39], (1, 1)), "e.embedding"),
        (Summary("s", (1.0,), (1,)), "e.covers"),
        (Summary("s", (1.0,), (-1, 1)), "e.covers"),
        (Summary("s", (1.0,), (True, 1)), "e.covers"),
        (Summary("s", (1.0,), "12"), "e.covers"),
        (Summary("s", (1.0,), None), "e.covers"),
        (Record("message", 1), "e.kind"),
        (Record("tool_call", 1), "e.kind"),
        (Record("summary", 1), "e.kind"),
        (Record("", 1), "e.kind"),
        (Record("k" * 65, 1), "e.kind"),
        (Record(5, 1), "e.kind"),
        ("text", "e"),
        (None, "e"),
    ],
)
def test_a_field_of_the_wrong_shape_is_refused_with_its_path(entry: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        codec.encode(entry, "e", LIMIT)
    assert caught.value.path.startswith(path)


@pytest.mark.parametrize("name", ["text", "embedding", "covers"])
def test_a_summarys_own_field_is_no_extra_one(name: str) -> None:
    """Or it would be lost: what is stored under the name is the summary's."""
    with pytest.raises(InvalidInput) as caught:
        codec.encode(Summary("s", (1.0,), (1, 1), extra={name: "mine"}), "e", LIMIT)
    assert caught.value.path == f"e.extra.{name}"


@pytest.mark.parametrize(
    "make",
    [
        lambda extra: ChatMessage("user", "x", extra=extra),
        lambda extra: ToolCall("f", {}, extra=extra),
        lambda extra: Summary("s", (1.0,), (1, 1), extra=extra),
    ],
)
def test_unknown_fields_keep_their_order(make: Any) -> None:
    names = [f"x{number}" for number in (3, 1, 4, 15, 9, 2, 6, 5)]
    draft = codec.encode(make(dict.fromkeys(names)), "e", LIMIT)
    back: Any = codec.decode("s", draft.kind, 1, 0.0, draft.checksum, draft.body)
    assert list(back.extra) == names


def test_the_deepest_nesting_that_is_allowed_comes_back() -> None:
    entry = Record("note", nested(200))
    draft = codec.encode(entry, "e", LIMIT)
    assert codec.decode("s", "note", 1, 0.0, draft.checksum, draft.body) == entry


def test_the_size_limit_is_of_the_stored_bytes() -> None:
    entry = Record("note", "ä" * 10)  # 20 bytes and two quotes
    assert len(codec.encode(entry, "e", 22).body) == 22
    with pytest.raises(InvalidInput, match="22 bytes is over the limit of 21"):
        codec.encode(entry, "e", 21)


@few
@given(number=st.integers(-(2**70), 2**70) | st.integers())
def test_an_integer_comes_back_or_is_refused(number: int) -> None:
    try:
        draft = codec.encode(Record("note", number), "e", LIMIT)
    except InvalidInput:
        assert not -(2**63) <= number < 2**64
        return
    back = codec.decode("s", "note", 1, 0.0, draft.checksum, draft.body)
    assert isinstance(back, Record)
    assert identical(back.body, number)


def test_a_string_enum_is_stored_as_its_value() -> None:
    draft = codec.encode(Record("note", [Colour.RED]), "e", LIMIT)
    assert draft.body == b'["red"]'


def test_a_dict_is_taken_as_a_message_and_unknown_fields_are_kept() -> None:
    draft = codec.encode({"role": "user", "content": "x", "metadata": None, "mood": 1}, "e", LIMIT)
    entry = codec.decode("s", "message", 1, 0.0, draft.checksum, draft.body)
    assert entry == ChatMessage("user", "x", extra={"mood": 1})


@few
@given(a=st.lists(st.binary(max_size=3), max_size=3), b=st.lists(st.binary(max_size=3), max_size=3))
def test_a_digest_tells_parts_apart(a: list[bytes], b: list[bytes]) -> None:
    assert (codec.digest(*a) == codec.digest(*b)) == (a == b)
    assert len(codec.digest(*a)) == 16
