"""The rules of a conversation, as pure functions: what a path is, what a trim keeps, what a tool call needs.

No IO, no clock, no randomness; nothing here knows how or where entries are stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import msgspec

from everturn import branches
from everturn.branches import Branches
from everturn.model import JSON, MESSAGE, SUMMARY, TOOL_CALL, ChatMessage, Entry, Record, Summary, ToolCall

Range: TypeAlias = branches.Range
Jump: TypeAlias = branches.Jump

SYSTEM_ROLES = frozenset({"system", "developer"})


class State(msgspec.Struct, frozen=True, gc=False):
    """Where a session stands: which entries of its log are its history. The same size at any length.

    The path ends at `head`. Of the entries on it, those up to `cleared` are hidden; those up to `floor` are
    hidden too (`trim`), but for summaries, which stand for them, and the system messages in `kept`.
    """

    head: int = 0
    cleared: int = 0
    floor: int = 0
    kept: tuple[int, ...] = ()
    messages: int = 0  # how many of the visible entries are messages


def path(head: int, jumps: Iterable[Jump]) -> list[Range]:
    """The ranges of seqs that lead to `head`, in order.

    An entry follows the one before it in the log, except where a jump says otherwise: the first entry after the
    head was moved. `jumps` are those of the session, newest first; a jump past the head is not on the way.
    """
    ranges: list[Range] = []
    for seq, after in jumps:
        if seq <= head:
            ranges.append((seq, head))
            head = after
    if head > 0:
        ranges.append((1, head))
    ranges.reverse()
    return ranges


def clip(ranges: Iterable[Range], low: int, high: int) -> list[Range]:
    """The parts of the ranges from `low` to `high`, both included."""
    clipped = ((max(first, low), min(last, high)) for first, last in ranges)
    return [(first, last) for first, last in clipped if first <= last]


def size(ranges: Iterable[Range]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def contains(ranges: Iterable[Range], seq: int) -> bool:
    return any(first <= seq <= last for first, last in ranges)


def merge(ranges: Iterable[Range]) -> list[Range]:
    """The same seqs in as few ranges as possible, in order."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def minus(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """What is in `ranges` and not in `others`, in order. One pass over both."""
    left: list[Range] = []
    cuts = merge(others)
    index = 0
    for first, last in merge(ranges):
        while index < len(cuts) and cuts[index][1] < first:
            index += 1
        position, start = index, first
        while position < len(cuts) and cuts[position][0] <= last:
            if start < cuts[position][0]:
                left.append((start, cuts[position][0] - 1))
            start = max(start, cuts[position][1] + 1)
            position += 1
        if start <= last:
            left.append((start, last))
    return left


class Reach(msgspec.Struct, frozen=True, gc=False):
    """What some states show: `whole` ranges of the log, and `summaries` in others; and the jumps on the way to them.

    A path goes on below what is hidden: a jump is on the way though nothing that it leads to is shown.
    """

    whole: list[Range]
    summaries: list[Range]
    jumps: list[Jump]


def reach(states: Iterable[State], jumps: Iterable[Jump]) -> Reach:
    """All that any of these states shows. The work grows with states and jumps, and not with their product.

    From the newest stretch of the log to the oldest: each collects up to where it is asked for, and what is hidden
    there, by states that end in it and by stretches that follow it. All that it asks of the stretch before it is one
    demand: those that go on there go on at the same entry, and where less is hidden, more is shown.
    """
    log = Branches(jumps)
    demands: list[list[tuple[int, int, int]]] = [[] for _ in log.firsts]  # up to which seq, floor, cleared
    kept: set[int] = set()
    for state in states:
        demands[log.stretch_of(state.head)].append((state.head, state.floor, state.cleared))
        kept.update(state.kept)
    whole = [(seq, seq) for seq in kept]
    summaries: list[Range] = []
    on_the_way: list[Jump] = []
    for stretch in reversed(range(len(demands))):
        if not demands[stretch]:
            continue
        first = max(1, log.firsts[stretch])
        for head, floor, cleared in demands[stretch]:
            whole += clip([(first, head)], floor + 1, head)
            summaries += clip([(first, head)], cleared + 1, floor)
        if stretch:
            _, floors, cleareds = zip(*demands[stretch], strict=True)
            after = log.afters[stretch]
            demands[log.parents[stretch]].append((after, min(floors), min(cleareds)))
            on_the_way.append((log.firsts[stretch], after))
    shown = merge(whole)
    return Reach(shown, minus(summaries, shown), on_the_way)


def out_of(needed: Reach, states: Sequence[State], jumps: Iterable[Jump]) -> list[bool]:
    """Of each state, whether it shows something that is not within `needed`."""
    log = Branches(jumps)
    whole = log.gaps(needed.whole)
    anything = log.gaps(merge([*needed.whole, *needed.summaries]))
    starts = [first for first, _ in needed.whole]

    def is_needed(seq: int) -> bool:
        at = bisect_right(starts, seq) - 1
        return at >= 0 and seq <= needed.whole[at][1]

    return [
        whole(state.head) > state.floor or anything(state.head) > state.cleared or not all(map(is_needed, state.kept))
        for state in states
    ]


# --- tool calls and their results ------------------------------------------------------------------------------------


def calls_in(message: ChatMessage) -> set[str]:
    """The ids of the tool calls a message makes (OpenAI's `tool_calls`, or `tool_use` parts)."""
    calls = [(call, "id") for call in message.tool_calls or ()]
    calls += [(part, "id") for part in _parts(message, "tool_use")]
    return _ids(calls)


def results_in(message: ChatMessage) -> set[str]:
    """The ids of the tool calls whose results a message carries (`tool_call_id`, or `tool_result` parts)."""
    results = _ids([(part, "tool_use_id") for part in _parts(message, "tool_result")])
    return results | ({message.tool_call_id} if message.tool_call_id else set())


def _parts(message: ChatMessage, kind: str) -> list[JSON]:
    parts = message.content if isinstance(message.content, list) else ()
    return [part for part in parts if isinstance(part, dict) and part.get("type") == kind]


def _ids(calls: Iterable[tuple[JSON, str]]) -> set[str]:
    found = (call.get(name) for call, name in calls if isinstance(call, dict))
    return {call_id for call_id in found if isinstance(call_id, str)}


def without_orphans(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Drop results at the beginning whose call was cut off; no model accepts a prompt that begins with one."""
    for index, message in enumerate(messages):
        if not (message.role == "tool" or results_in(message)):
            return messages[index:]
    return []


HEALED = "No result was recorded for this tool call; it may not have run."


def heal(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Give every unanswered tool call a synthetic error result, right behind the results that are there."""
    unanswered = _unanswered(messages)
    healed: list[ChatMessage] = []
    owed: list[str] = []
    for index, message in enumerate(messages):
        if owed and not results_in(message):
            healed += map(_missing_result, owed)
            owed = []
        healed.append(message)
        owed += unanswered.get(index, ())
    return healed + list(map(_missing_result, owed))


def _unanswered(messages: Sequence[ChatMessage]) -> dict[int, list[str]]:
    """By position, the ids of calls that no result follows before an id is used again (some models reuse them)."""
    calls: dict[str, int] = {}
    unanswered: dict[int, list[str]] = {}
    for index, message in enumerate(messages):
        for call_id in results_in(message):
            calls.pop(call_id, None)
        for call_id in sorted(calls_in(message)):
            if call_id in calls:
                unanswered.setdefault(calls[call_id], []).append(call_id)
            calls[call_id] = index
    for call_id, index in calls.items():
        unanswered.setdefault(index, []).append(call_id)
    return unanswered


def _missing_result(call_id: str) -> ChatMessage:
    return ChatMessage("tool", HEALED, tool_call_id=call_id, metadata={"healed": True})


# --- trimming --------------------------------------------------------------------------------------------------------


class Header(msgspec.Struct, frozen=True, gc=False):
    """What a trim needs to know of one visible entry."""

    seq: int
    turn: int
    kind: str
    system: bool = False
    calls: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
    tokens: int = 0


class Cut(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a trim: hide everything up to `floor` but summaries and `kept`; `hidden` messages go."""

    floor: int
    kept: tuple[int, ...]
    hidden: int


def header(entry: Entry, turn: int, count_tokens: Callable[[ChatMessage], int] | None) -> Header:
    """The header of an entry that has a seq."""
    seq = entry.seq or 0
    if not isinstance(entry, ChatMessage):
        return Header(seq, turn, _kind(entry))
    return Header(
        seq,
        turn,
        MESSAGE,
        entry.role in SYSTEM_ROLES,
        frozenset(calls_in(entry)),
        frozenset(results_in(entry)),
        count_tokens(entry) if count_tokens else 0,
    )


def _kind(entry: Entry) -> str:
    return TOOL_CALL if isinstance(entry, ToolCall) else SUMMARY if isinstance(entry, Summary) else "record"


def plan_trim(
    headers: Sequence[Header],
    *,
    floor: int,
    max_messages: int | None,
    max_tokens: int | None,
    keep_system: bool,
) -> Cut | None:
    """Where to cut so that what stays fits, or None if it fits already. `floor` is where the last trim cut.

    Keeps system messages (if told to; they count), then the newest whole turns that fit, and always the last one.
    Never cuts between a tool call and its result: so it may keep less than would fit, and more where the last turn
    answers an earlier one.
    """
    messages = [item for item in headers if item.kind == MESSAGE]
    stay = {item.seq for item in messages if item.system and keep_system}
    count = len(stay)
    tokens = sum(item.tokens for item in messages if item.seq in stay)
    further_back = Counter(call for item in messages for call in item.calls)
    unmatched: set[str] = set()  # results seen, whose call was not
    start: int | None = None  # the seq from which on everything stays
    for turn in _turns_backwards(messages):
        for item in turn:
            if item.seq not in stay:
                count += 1
                tokens += item.tokens
        over = (max_messages is not None and count > max_messages) or (max_tokens is not None and tokens > max_tokens)
        if over and start is not None:
            break
        for item in turn:  # backwards: some models use an id again, and the nearest call before a result is its own
            further_back.subtract(item.calls)
            unmatched -= item.calls
            unmatched |= item.results
        if not any(further_back[call] for call in unmatched):
            start = turn[-1].turn
    if start is None:
        return None
    stay.update(item.seq for item in messages if item.seq >= start)
    hidden = len(messages) - len(stay)
    if not hidden:
        return None
    new_floor = max(start - 1, floor)
    return Cut(new_floor, tuple(item.seq for item in messages if item.seq <= new_floor and item.seq in stay), hidden)


def _turns_backwards(messages: Sequence[Header]) -> Iterable[list[Header]]:
    """The turns, newest first; within a turn newest first too."""
    for _, turn in groupby(reversed(messages), key=lambda item: item.turn):
        yield list(turn)


# --- reading ---------------------------------------------------------------------------------------------------------


def pairs(messages: Iterable[ChatMessage]) -> list[dict[str, str]]:
    """The two-string face of a history: each user message with the last assistant text before the next one.

    A question without an answer yet has an empty `ai`; an answer without a question an empty `human`.
    """
    found: list[dict[str, str]] = []
    for message in messages:
        if message.role == "user":
            found.append({"human": message.text, "ai": ""})
        elif message.role == "assistant" and message.text:
            if not found:
                found.append({"human": "", "ai": ""})
            found[-1]["ai"] = message.text
    return found


def mentions(entry: Entry, text: str) -> bool:
    """Whether some string in the entry contains the text; ASCII letters match in either case."""
    wanted = fold(text)
    return any(wanted in fold(string) for string in _strings(_searchable(entry)))


_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold(text: str) -> str:
    """Lower the ASCII letters and leave the rest: a rule that every engine can follow."""
    return text.translate(_FOLD)


def _searchable(entry: Entry) -> JSON:
    if isinstance(entry, ChatMessage):
        return [entry.to_dict()]
    if isinstance(entry, ToolCall):
        return [entry.name, entry.arguments, entry.call_id, entry.result, entry.error, entry.extra]
    if isinstance(entry, Record):
        return [entry.body]
    return [entry.text, entry.extra]


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
