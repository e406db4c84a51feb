"""Plans a trim: which of the newest turns stay, from the headers of messages, newest first. Pure.

It reads nothing and keeps no message. store/trim.py reads, and asks the planner how much more it needs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, compress, count, repeat
from operator import ne
from typing import TypeAlias

import msgspec

from everturn.core.tool_calls import SYSTEM_ROLES, calls_in, results_in
from everturn.errors import InvalidInput
from everturn.model import ChatMessage


class Header(msgspec.Struct, frozen=True, gc=False):
    """The facts about one visible message that a plan needs."""

    seq: int
    turn: int  # seq of the first entry of its turn
    system: bool = False
    calls: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
    tokens: int = 0
    size: int = 0  # bytes


class TrimCut(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a trim: hide everything up to `floor` but summaries and `kept`; `hidden` messages go."""

    floor: int
    kept: tuple[int, ...]
    hidden: int


# A turn with which the part that stays may begin: its number, counted from the newest, and its seq; then the messages,
# tokens and bytes of that part, without the system messages that stay anyway.
_Start: TypeAlias = tuple[int, int, int, int, int]


class TrimPlanner:
    """Plans where to cut, from the headers of messages, newest first.

    Keeps system messages (if told to; they count), then the newest whole turns that fit, and always the last one.
    Never cuts between a tool call and its result: so it may keep less than would fit, and more where the last turn
    answers an earlier one. Its memory is bounded by the turns that may stay and the system messages, whatever the
    length of the history. `floor` is where the last trim cut.
    """

    def __init__(
        self,
        *,
        floor: int,
        max_messages: int | None,
        max_tokens: int | None,
        keep_system: bool,
        max_bytes: int | None = None,
    ) -> None:
        self._floor = floor
        self._max_messages = max_messages
        self._max_tokens = max_tokens
        self._max_bytes = max_bytes
        self._keep_system = keep_system
        self.seen = 0  # messages added or passed over
        self._system = array("q")  # seqs of system messages that stay wherever the cut is
        self._system_tokens = 0
        self._system_size = 0
        self._reserved: set[int] = set()  # seqs of messages that stay anyway, and were counted before
        self._beside = 0  # messages that are no part of the history, and stay
        self._low: list[int] = []  # seqs of messages below the floor, which an earlier trim kept
        self._turn: int | None = None  # the one being added
        self._number = 0
        self._count = 0
        self._tokens = 0
        self._size = 0
        # Of the turns that are too far back to fit, only the first is kept, in case there is no other start.
        self._starts: list[_Start] = []
        # Results whose call was not seen yet, and in which turn. If the call shows up, that turn and those before it
        # down to the call's are no start. Some models use an id again: the nearest call before a result is its own.
        self._unmatched: dict[str, int] = {}

    @property
    def counts_tokens(self) -> bool:
        """Whether the tokens and bytes of messages that are not kept anyway still matter."""
        return (self._max_tokens is not None or self._max_bytes is not None) and not self._is_over

    @property
    def wants_turns(self) -> bool:
        """Whether the turns of older messages still matter. Else their headers may have any."""
        return not (self._is_over and self._starts and self._first_unmatched > self._starts[0][0])

    @property
    def wants_more(self) -> bool:
        """Whether older messages still matter. Else the plan is fixed."""
        return self.wants_turns or self._keep_system or self._first_unmatched <= self._starts[-1][0]

    @property
    def wants_calls(self) -> bool:
        """Whether tool calls and results of older messages still matter."""
        return self.wants_turns or self._first_unmatched <= self._starts[-1][0]

    def reserve(self, header: Header) -> None:
        """Count a message that stays wherever the cut is; one with a seq of 0 is no part of the history."""
        if header.seq:
            self._reserved.add(header.seq)
            self._system.append(header.seq)
        else:
            self._beside += 1
        self._system_tokens += header.tokens
        self._system_size += header.size

    def add(self, header: Header) -> None:
        """Take the next older message."""
        if header.turn != self._turn:
            self._end_turn()
            self._turn = header.turn
        self.seen += 1
        if header.seq <= self._floor:
            self._low.append(header.seq)
        if header.seq in self._reserved:
            pass
        elif self._keep_system and header.system:
            self._system.append(header.seq)
            self._system_tokens += header.tokens
            self._system_size += header.size
        else:
            self._count += 1
            self._tokens += header.tokens
            self._size += header.size
        for call in header.calls:
            since = self._unmatched.pop(call, None)
            while since is not None and self._starts and self._starts[-1][0] >= since:
                self._starts.pop()
        for result in header.results:
            self._unmatched.setdefault(result, self._number)

    def add_plain(
        self,
        seqs: Sequence[int],
        turns: Sequence[int],
        tokens: Sequence[int] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> None:
        """Take the next older messages, newest first: as `add` does, but all at once, which is ten times as fast.

        None of them is a system message, makes a call, or has a result. Without tokens or sizes, these are all 0.
        """
        if not seqs:
            return
        if turns[0] != self._turn:
            self._end_turn()
        if seqs[-1] <= self._floor:
            self._low += [seq for seq in seqs if seq <= self._floor]
        ends = [*compress(count(1), map(ne, turns, turns[1:]))]  # how many are in the turns that end here, and newer
        total, size = self._tokens, self._size
        totals: Iterable[int] = repeat(total)
        all_sizes: Iterable[int] = repeat(size)
        fit = len(ends)  # of the turns that end here; those behind one that does not fit do not fit either
        if self._max_messages is not None:
            fit = bisect_right(ends, self._max_messages - self._count - len(self._system) - self._beside)
        if tokens is not None and self._max_tokens is not None:
            sums = [*accumulate(tokens, initial=total)]
            total, totals = sums[-1], (of_ends := [sums[at] for at in ends])
            fit = min(fit, bisect_right(of_ends, self._max_tokens - self._system_tokens))
        if sizes is not None and self._max_bytes is not None:
            sums = [*accumulate(sizes, initial=size)]
            size, all_sizes = sums[-1], (of_ends := [sums[at] for at in ends])
            fit = min(fit, bisect_right(of_ends, self._max_bytes - self._system_size))
        if not self._starts:
            fit = max(fit, 1)
        firsts = [turns[at - 1] for at in ends[:fit]]
        # Not strict: as many as there are firsts.
        counts = map(self._count.__add__, ends)
        self._starts += zip(count(self._number), firsts, counts, totals, all_sizes)
        self._number += len(ends)
        self._turn = turns[-1]
        self.seen += len(seqs)
        self._count += len(seqs)
        self._tokens, self._size = total, size

    def pass_over(self, count: int) -> None:
        """Count so many older messages, none of them a system message, whose headers are not needed."""
        self.seen += count

    @property
    def starts(self) -> int:
        """Number of turns with which the part that stays may begin, as far as they are kept here."""
        self._end_turn()
        return len(self._starts)

    def cut(self, total: int | None = None, *, later: int = 0) -> TrimCut | None:
        """Plan the cut, once no more is wanted or there is no more; None if there is nothing to hide.

        `total` is the number of visible messages, if not all of them were added. `later`: cut so many starts behind the
        oldest that fits, but never behind the newest.
        """
        start = self._start(later)
        if start is None:
            return None
        _, turn, messages, _, _ = start
        hidden = (self.seen if total is None else total) - messages - len(self._system)
        if not hidden:
            return None
        kept = {seq for seq in self._system if seq < turn} | {seq for seq in self._low if seq >= turn}
        return TrimCut(max(turn - 1, self._floor), tuple(sorted(kept)), hidden)

    def first_turn(self, *, later: int = 0) -> int:
        """Return the seq with which the part that `cut` leaves begins, but for system messages; 0 if there is none."""
        start = self._start(later)
        return 0 if start is None else max(start[1], self._floor + 1)

    def _start(self, later: int) -> _Start | None:
        """Find the oldest start that fits, or the one so many `later`; the newest if none does."""
        self._end_turn()
        for start in reversed(self._starts):
            if not self._exceeds(*start[2:]):
                if not later:
                    return start
                later -= 1
        return self._starts[0] if self._starts else None

    def _end_turn(self) -> None:
        """Note that the part that stays may begin with the turn that was being added."""
        if self._turn is None:
            return
        if not self._starts or not self._is_over:
            self._starts.append((self._number, self._turn, self._count, self._tokens, self._size))
        self._number += 1
        self._turn = None

    @property
    def _is_over(self) -> bool:
        """Whether the messages added so far do not fit, whatever is still to come."""
        return self._exceeds(self._count, self._tokens, self._size)

    def _exceeds(self, count: int, tokens: int, size: int) -> bool:
        return (
            (self._max_messages is not None and count + len(self._system) + self._beside > self._max_messages)
            or (self._max_tokens is not None and tokens + self._system_tokens > self._max_tokens)
            or (self._max_bytes is not None and size + self._system_size > self._max_bytes)
        )

    @property
    def _first_unmatched(self) -> int:
        return min(self._unmatched.values(), default=self._number + 1)


def header(message: ChatMessage, turn: int, tokens: int = 0, size: int = 0) -> Header:
    """Make the header of a message that has a seq."""
    plain = message.tool_calls is None and message.tool_call_id is None and isinstance(message.content, str)
    return Header(
        message.seq or 0,
        turn,
        message.role in SYSTEM_ROLES,
        _NONE if plain else frozenset(calls_in(message)),
        _NONE if plain else frozenset(results_in(message)),
        tokens,
        size,
    )


_NONE: frozenset[str] = frozenset()


def counted(count_tokens: Callable[[ChatMessage], int], message: ChatMessage) -> int:
    """Count the tokens of a message. Raises InvalidInput unless the counter returns a whole number of at least 0.

    An error of the counter itself is raised as it is.
    """
    tokens = count_tokens(message)
    if type(tokens) is not int or tokens < 0:
        raise InvalidInput(
            f"returned {tokens!r} for a message; a count is a whole number of at least 0", path="count_tokens"
        )
    return tokens
