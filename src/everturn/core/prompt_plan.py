"""Plans a prompt: which messages of a history, read from the newest backwards, fit the bounds of a context. Pure.

The rules are those of a trim (trimming.py), so that a context shows the turns that a trim would leave in view.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

import msgspec

from everturn.core import prompts
from everturn.core.healing import has_healed, heal
from everturn.core.paths import State
from everturn.core.tool_calls import SYSTEM_ROLES
from everturn.core.trimming import Header, TrimPlanner, counted, header
from everturn.model import ChatMessage

_SPECIAL_ROLES = SYSTEM_ROLES | {"tool"}
FEWEST, MOST = 16, 1000  # messages of a first page
USUAL_TOKENS, USUAL_BYTES = 50, 250  # of a short message, to guess how many will fit: a second page costs more


class CountedOnce:
    """A caller's counter of tokens that is asked once for each message: a tokenizer takes long."""

    def __init__(self, count_tokens: Callable[[ChatMessage], int]) -> None:
        self._count_tokens = count_tokens
        # By id(). The message is held, so that no other can have its id.
        self._known: dict[int, tuple[ChatMessage, int]] = {}

    def __call__(self, message: ChatMessage) -> int:
        """Count the tokens of a message. Raises as `counted` does."""
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = message, counted(self._count_tokens, message)
        return known[1]


class PromptBounds(msgspec.Struct, frozen=True):
    """Bounds of a prompt, and the function that counts its tokens (None: they are estimated)."""

    max_messages: int | None
    max_tokens: int | None
    max_bytes: int | None
    count_tokens: CountedOnce | None

    @property
    def first_page(self) -> int:
        """Guess how many of the newest messages will do: one more than fit, which shows that they do not."""
        guesses = [MOST] if self.max_messages is None else [self.max_messages + 1, MOST]
        if self.max_tokens is not None:
            guesses.append(max(FEWEST, self.max_tokens // USUAL_TOKENS + 1))
        if self.max_bytes is not None:
            guesses.append(max(FEWEST, self.max_bytes // USUAL_BYTES + 1))
        return min(guesses)

    def tokens_of(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Count or estimate the tokens of each message. Raises InvalidInput if the counter returns nonsense."""
        if self.count_tokens is None:
            return prompts.estimated(messages)
        return list(map(self.count_tokens, messages))

    def are_kept_by(self, messages: Sequence[ChatMessage]) -> bool:
        """Whether these messages are within the bounds. Raises InvalidInput if the counter returns nonsense."""
        return (
            (self.max_messages is None or len(messages) <= self.max_messages)
            and (self.max_bytes is None or sum(map(prompts.size_of, messages)) <= self.max_bytes)
            and (self.max_tokens is None or sum(self.tokens_of(messages)) <= self.max_tokens)
        )

    def header(self, message: ChatMessage, turn: int, *, counts: bool = True) -> Header:
        """Make the header of a message, with its tokens and bytes as far as a bound needs them."""
        tokens = self.tokens_of([message])[0] if counts and self.max_tokens is not None else 0
        size = prompts.size_of(message) if counts and self.max_bytes is not None else 0
        return header(message, turn, tokens, size)


class PromptPlan:
    """Takes pages of messages, newest page first, until it wants no more; then `compose` gives the prompt.

    `leading`: system messages from before the pages. `summaries`: messages that stand for hidden ones. Both are shown
    whatever the bounds are, and count.
    """

    def __init__(
        self, bounds: PromptBounds, state: State, leading: Sequence[ChatMessage], summaries: Iterable[ChatMessage]
    ) -> None:
        self._bounds = bounds
        self._state = state
        self._leading = leading
        self._summaries = list(summaries)
        self._messages: list[ChatMessage] = []
        self.concerns_tools = False  # whether a message may make a call, or have a result
        self._planner = TrimPlanner(
            floor=state.floor,
            max_messages=bounds.max_messages,
            max_tokens=bounds.max_tokens,
            max_bytes=bounds.max_bytes,
            keep_system=True,
        )
        for message in (*self._summaries, *leading):
            self._planner.reserve(bounds.header(message, 0))

    @property
    def wants_more(self) -> bool:
        """Whether older messages still matter."""
        return self._planner.wants_calls

    def add(self, messages: list[ChatMessage], turns: Sequence[int]) -> None:
        """Take the next older page, in order; `turns` has the first seq of the turn of each message."""
        self._messages[:0] = messages
        end = len(messages)
        special = [
            at
            for at, message in enumerate(messages)
            if message.tool_calls is not None
            or message.tool_call_id is not None
            or type(message.content) is not str
            or message.role in _SPECIAL_ROLES
        ]
        for at in reversed(special):
            self.concerns_tools = self.concerns_tools or messages[at].role not in SYSTEM_ROLES
            self._add_plain(messages[at + 1 : end], turns[at + 1 : end])
            counts = self._planner.counts_tokens or messages[at].role in SYSTEM_ROLES
            self._planner.add(self._bounds.header(messages[at], turns[at], counts=counts))
            end = at
        self._add_plain(messages[:end], turns[:end])

    def _add_plain(self, messages: list[ChatMessage], turns: Sequence[int]) -> None:
        bounds, planner = self._bounds, self._planner
        messages.reverse()
        tokens = sizes = None
        if planner.counts_tokens:
            if bounds.max_tokens is not None:
                tokens = self._tokens_until_over(messages)
            if bounds.max_bytes is not None:
                sizes = [prompts.size_of(message) for message in messages]
        planner.add_plain([message.seq or 0 for message in messages], turns[::-1], tokens, sizes)

    def _tokens_until_over(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Count the tokens of messages, newest first. Messages after the first that cannot fit get 0: a tokenizer is
        slow."""
        bounds = self._bounds
        if bounds.count_tokens is None:
            return bounds.tokens_of(messages)
        tokens, left = [0] * len(messages), bounds.max_tokens or 0
        for at, message in enumerate(messages):
            tokens[at] = bounds.count_tokens(message)
            left -= tokens[at]
            if left < 0:
                break
        return tokens

    def compose_healed(self) -> tuple[list[ChatMessage], int, bool]:
        """Return the prompt as `compose` does, healed, and whether healing changed it.

        Results that healing adds count: as many of the oldest turns go as needed. Each call stays with its results, so
        that a prompt of fewer turns is shorter when it is healed, too.
        """
        shown, left_out = self.compose()
        prompt = heal(shown)
        if not has_healed(prompt, shown):
            return prompt, left_out, False
        latest = self._planner.starts - 1
        if not self._bounds.are_kept_by(prompt):
            later = 1 + bisect_left(
                range(1, latest),
                True,  # noqa: FBT003 - what is looked for, in order
                key=lambda at: self._bounds.are_kept_by(heal(self.compose(later=at)[0])),
            )
            shown, left_out = self.compose(later=later)
            prompt = heal(shown)
        return prompt, left_out, True

    def compose(self, *, later: int = 0) -> tuple[list[ChatMessage], int]:
        """Return the prompt, and how many messages of the history it leaves out.

        In front stand the system messages, then the summaries, then the newest turns that fit. `later` begins so many
        starts behind the oldest that fits.
        """
        messages = self._messages
        start = bisect_left(messages, self._planner.first_turn(later=later), key=_stored_seq)
        oldest = _seq_of(messages[0]) if messages else self._state.head + 1
        front = [message for message in self._leading if _seq_of(message) < oldest]  # the others were read again
        front += [message for message in messages[:start] if message.role in SYSTEM_ROLES]
        while start < len(messages) and messages[start].role in SYSTEM_ROLES:
            front.append(messages[start])
            start += 1
        shown = front + self._summaries + messages[start:]
        return shown, self._state.messages - len(shown) + len(self._summaries)


_stored_seq = attrgetter("seq")


def _seq_of(message: ChatMessage) -> int:
    return message.seq or 0
