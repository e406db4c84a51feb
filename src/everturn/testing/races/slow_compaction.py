"""Compactions under way in worker processes, and a check of what became of every message.

The kit's model (workers/fake_model.py) names in its summary every message that it was given. So a message is in view,
or in a summary, or lost; and in one place only. The clauses are in contract/compaction.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from everturn.testing.kit.clause import Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import ReadMessage, SentMessage
from everturn.testing.workers.fake_model import TURN_ID
from everturn.testing.workers.messages import Done, Outcome, Paused, Step, Stop

Turns: TypeAlias = Sequence[Sequence[SentMessage]]
LONG = 6  # turns that make a session worth a compaction, of which two are to be left
LOCKED = 2.0  # seconds after which a call counts as one that waits for the model
_BLOCKED = 0.25  # the same, for one that waits at a driver call
_LISTED = 6  # messages that a story names


def compaction_step(kit: Kit, session: str) -> Step:
    return Step("compact", session, (2 * len(kit.turn()),))


def long_session(kit: Kit, store: Instance, session: str | None = None, turns: int = LONG) -> tuple[str, Turns]:
    """Write a session that is worth a compaction. Returns its name and its turns."""
    session, written = session or kit.session(), kit.turns(turns)
    store.values(*(Step("append", session, (turn,)) for turn in written))
    return session, written


class CompactionUnderWay:
    """A compaction in a process of its own, whose model waits until `finish`."""

    def __init__(self, kit: Kit, store: Instance, session: str) -> None:
        """Begin it. Raises Untested if it ends without asking its model."""
        self._kit, self._store = kit, store
        store.worker.send(store.job(compaction_step(kit, session), model="pause"))
        report = kit.any_report(store.worker)
        self._done = report if isinstance(report, Done) else None
        self.asked = isinstance(report, Paused)

    def must_ask(self) -> None:
        """Raise Untested if the model was not asked."""
        if not self.asked:
            fault = self._done.outcomes[0][0].fault if self._done else None
            raise Untested(f"a compaction of {LONG} turns did not ask the model" + (f": {fault}" if fault else ""))

    def finish(self) -> Done:
        """Let the model answer, and wait for the end of the compaction. Does nothing the second time."""
        if self._done is None:
            self._store.worker.resume()
            self._done = self._kit.report(self._store.worker, Done)
        return self._done

    def meanwhile(self, other: Instance, *steps: Step) -> tuple[Outcome, ...]:
        """Take steps in another process while the model works. If they wait for it, it answers."""
        other.worker.send(other.job(*steps))
        if not other.worker.poll(LOCKED):
            self._kit.notes.append("other calls wait for the model")
            self.finish()
        return self._kit.report(other.worker, Done).outcomes[0]


def begin_compaction(kit: Kit, store: Instance, session: str) -> CompactionUnderWay:
    """Begin a compaction whose model waits. Raises Untested if it asks none."""
    under_way = CompactionUnderWay(kit, store, session)
    under_way.must_ask()
    return under_way


# --- prompts ---------------------------------------------------------------------------------------------------------


class Prompt(msgspec.Struct, frozen=True):
    """The messages that a model would be given: those in view, and those that summaries stand for, each in order."""

    in_view: tuple[str, ...]
    summarised: tuple[str, ...]

    def __str__(self) -> str:
        return f"in summaries: {listed(self.summarised)}; in view: {listed(self.in_view)}"


def listed(named: Sequence[str]) -> str:
    """List messages in few words: the first ones, and how many more."""
    more = f" and {len(named) - _LISTED} more" if len(named) > _LISTED else ""
    return ", ".join(named[:_LISTED]) + more if named else "nothing"


def prompt_of(messages: Iterable[ReadMessage]) -> Prompt:
    in_view: list[str] = []
    summarised: list[str] = []
    for message in messages:
        named = TURN_ID.findall(str(message.content))
        (in_view if [message.content] == named else summarised).extend(named)
    return Prompt(tuple(in_view), tuple(summarised))


def read_prompt(reader: Instance, session: str) -> Prompt:
    return prompt_of(reader.call("prompt", session))


def contents(turns: Iterable[Sequence[SentMessage]]) -> list[str]:
    return [str(sent.content) for turn in turns for sent in turn]


def check_prompt(
    kit: Kit, prompt: Prompt, expected: Turns, story: str, *, session: str, maybe: Iterable[str] = ()
) -> None:
    """Raise Broken unless each of these turns is in the prompt once, in order, and nothing else is but `maybe`."""
    wanted, maybe = contents(expected), frozenset(maybe)
    found = Counter(prompt.summarised + prompt.in_view)
    if lost := [one for one in wanted if one not in found]:
        kit.broken(f"{story}: {listed(lost)} are in no summary and not in view ({prompt})", session=session)
    if foreign := [one for one in found if one not in wanted and one not in maybe]:
        kit.broken(f"{story}: {listed(foreign)} should be gone, and are there ({prompt})", session=session)
    if twice := [one for one, times in found.items() if times > 1]:
        kit.broken(f"{story}: {listed(twice)} are there more than once ({prompt})", session=session)
    whole = [one for one in prompt.summarised + prompt.in_view if one not in maybe]
    if whole != [one for one in wanted if one not in maybe]:
        kit.broken(f"{story}: the order is another ({prompt})", session=session)


def unanswered(steps: Iterable[Step], outcomes: Iterable[Outcome]) -> list[str]:
    """Contents of appends that raised: they may be stored or not."""
    return contents(step.args[0] for step, outcome in zip(steps, outcomes, strict=True) if not outcome.ok)


def acknowledged(steps: Iterable[Step], outcomes: Iterable[Outcome]) -> list[Any]:
    """Turns of appends that returned. Raises Untested if there is none."""
    turns = [step.args[0] for step, outcome in zip(steps, outcomes, strict=True) if outcome.ok]
    if not turns:
        raise Untested("no turn was acknowledged while the model was at work")
    return turns


# --- at a driver call ------------------------------------------------------------------------------------------------


def stop_beside(
    kit: Kit, stopped: Instance, step: Step, n: int, other: Instance, meanwhile: Step
) -> tuple[str | None, Outcome, Outcome]:
    """Stop a step at its n-th driver call while another process takes one, or waits. Returns where it was stopped, None
    if it ended before, and both outcomes."""
    stopped.worker.send(stopped.job(step, stop=Stop(n)))
    report = kit.any_report(stopped.worker)
    other.worker.send(other.job(meanwhile))
    if isinstance(report, Paused):
        other.worker.poll(_BLOCKED)
        stopped.worker.resume()
        done = kit.report(stopped.worker, Done)
    else:
        assert isinstance(report, Done)  # noqa: S101 - the worker's protocol
        done = report
    passed = kit.report(other.worker, Done).outcomes[0][0]
    return report.at if isinstance(report, Paused) else None, done.outcomes[0][0], passed
