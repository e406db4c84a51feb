"""Composes prompts: estimates of tokens, summaries as messages, and which summaries stand for hidden messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from everturn.core.codec import hides
from everturn.core.paths import State
from everturn.core.tool_calls import SYSTEM_ROLES
from everturn.model import JSON, ChatMessage, Summary

SUMMARY_PREFIX = "Summary of the earlier conversation:\n"
CHARACTERS_PER_TOKEN = 4  # of English text; other languages have fewer
TOKENS_PER_MESSAGE = 4  # of a message's role and its ends
TOKENS_PER_MEDIUM = 1000  # of an image, a sound, a file

_encode = msgspec.json.Encoder().encode


def estimate_tokens(message: ChatMessage) -> int:
    """Estimate the tokens of a message, without a tokenizer: four characters each, 1,000 for an image or a file.

    It is meant to be right within a factor of two. Leave room, or pass a counter of your own.
    """
    characters = len(message.name or "") + (len(_encode(message.tool_calls)) if message.tool_calls else 0)
    media = 0
    if isinstance(message.content, str):
        characters += len(message.content)
    else:
        for part in message.content or ():
            if _is_text(part):
                characters += len(_encode(part))
            else:
                media += 1
    return TOKENS_PER_MESSAGE + -(-characters // CHARACTERS_PER_TOKEN) + media * TOKENS_PER_MEDIUM


def estimated(messages: Iterable[ChatMessage]) -> list[int]:
    """Estimate the tokens of each message."""
    # As estimate_tokens has it, without a call for each: most messages are plain.
    return [
        TOKENS_PER_MESSAGE + (len(message.content) + CHARACTERS_PER_TOKEN - 1) // CHARACTERS_PER_TOKEN
        if type(message.content) is str and message.tool_calls is None and message.name is None
        else estimate_tokens(message)
        for message in messages
    ]


def _is_text(part: JSON) -> bool:
    """Whether a part is words, or a tool's call or result: text, whatever it says."""
    if not isinstance(part, dict):
        return True
    return isinstance(part.get("text"), str) or part.get("type") in ("tool_use", "tool_result", "thinking")


def size_of(message: ChatMessage) -> int:
    """Count the bytes of a message as JSON, as it is sent to a model."""
    return len(_encode(message.to_prompt()))


def summary_message(summary: Summary) -> ChatMessage:
    """Render a summary as a message. Its metadata has the seq of the summary, and the seqs that it stands for."""
    marks: dict[str, JSON] = {"summary": summary.seq, "covers": list(summary.covers)}
    return ChatMessage("system", SUMMARY_PREFIX + summary.text, metadata=marks)


def leading(messages: Sequence[ChatMessage], floor: int) -> tuple[list[ChatMessage], bool]:
    """Choose the system messages that a prompt begins with, from the first messages of a history, in order.

    These are the system messages that a trim kept, up to the floor, and above the floor those before the first message
    of another role. Returns them, and whether such another message was found: if not, there may be more of them further
    on.
    """
    found: list[ChatMessage] = []
    for message in messages:
        if message.role in SYSTEM_ROLES:
            found.append(message)
        elif (message.seq or 0) > floor:
            return found, True
    return found, False


def is_in_view(summary: Summary, state: State) -> bool:
    """Whether a state shows a summary on its path. The summary of a fold is shown only while the fold's entries are
    hidden."""
    return hides(summary.extra, summary.covers) <= state.floor


def standing_for_hidden(summaries: Iterable[Summary], state: State) -> tuple[Summary, ...]:
    """Choose the summaries that stand for messages that a trim or fold hides, in order of the seqs they cover.

    A summary is left out if a newer one covers all that it covers. An older summary that covers more than a newer one
    stays.
    """
    chosen: list[Summary] = []
    for summary in sorted(summaries, key=lambda one: -(one.seq or 0)):
        first, last = summary.covers
        if state.cleared < last <= state.floor and not any(
            one.covers[0] <= first and last <= one.covers[1] for one in chosen
        ):
            chosen.append(summary)
    return tuple(sorted(chosen, key=lambda one: (one.covers, one.seq or 0)))


def to_carry(dropped: Iterable[Summary], given: Iterable[Summary], state: State, after: int) -> list[Summary]:
    """Choose the summaries to write again when a replace moves the head of a state back to `after`.

    `dropped` are those behind `after`, in order, and `given` those that the caller writes. A summary is chosen if it is
    in view and stands for an entry that stays hidden, unless another does as well: a newer one that covers as much of
    what stays. Of two that cover the same of it, the one that covers less of what goes is preferred.
    """
    hidden = min(after, state.floor)

    def is_needed(one: Summary) -> bool:
        return one.covers[0] <= hidden and state.cleared < min(one.covers[1], hidden) and is_in_view(one, state)

    candidates = [one for one in dropped if is_needed(one)]
    all_of_them = [*candidates, *filter(is_needed, given)]
    return [
        one
        for age, one in enumerate(candidates)
        if not any(
            _does_as_well(other, one, state.floor, after, is_newer=place > age)
            for place, other in enumerate(all_of_them)
            if place != age
        )
    ]


def _does_as_well(other: Summary, one: Summary, floor: int, after: int, *, is_newer: bool) -> bool:
    """Whether a summary makes another one superfluous for the entries up to `after`."""
    (first, last), (begin, end) = other.covers, one.covers
    if first > begin or min(last, after) < min(end, after):
        return False
    if last > floor >= end:
        return False  # it covers entries in view, and so stands for nothing yet (standing_for_hidden)
    covers_more = first < begin or min(last, after) > min(end, after)
    return is_newer if covers_more or last == end else last < end


def is_fold(summary: Summary) -> bool:
    """Whether a fold wrote the summary."""
    return hides(summary.extra, summary.covers) > 0
