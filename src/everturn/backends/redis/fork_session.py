"""Forks: copies a state of one session into a new one, staged in bounded steps, then made visible by one script."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from everturn.backend import ChangeOutcome, ChangeRequest, Fork, ForkRequest, Status
from everturn.backends.redis import scripts
from everturn.backends.redis.changes import common_args, outcome_of
from everturn.backends.redis.client import Sender
from everturn.backends.redis.keys import PARTS, KeyNames, Keys
from everturn.backends.redis.reads import PAGE, FetchedEntries
from everturn.backends.redis.session_state import PathWindow, SessionView, read_view, walk
from everturn.backends.redis.staged_rows import StagedRows, put
from everturn.backends.redis.stored_form import facts_text, state_text
from everturn.core.codec import missing
from everturn.core.paths import Jump, Range, clip, merge
from everturn.errors import MemoryStoreBackendError

STEP = 4 * PAGE  # entries that are fetched, and then staged, at a time


async def fork(sender: Sender, names: KeyNames, request: ForkRequest, now: str, deadline: float) -> ChangeOutcome:
    """Carry out Backend.fork. Raises MemoryStoreBackendError, "not_written", as soon as it is clear that there is too
    little time: nothing is left of the copy then."""
    keys = names.keys(request.target) + names.staged(request.target, request.call)
    birth = ChangeRequest(
        request.target, Fork(), request.call, request.ttl, request.key, request.content, retry=request.retry
    )
    common = common_args(birth, waits=bool(sender.replicas))
    known = await _ask(sender, keys, [*common, "", ""], request, now, deadline)
    if known.status is not Status.UNCHANGED:
        return known
    source, window = names.keys(request.source), PathWindow(low=0)
    lost: SessionView | None = None
    while True:
        view, _ = await read_view(
            sender, source, request.source, now, deadline, at=request.at, others="b", window=window, ranges=True
        )
        refusal = _refusal(request, view)
        if refusal is not None:
            return refusal
        view = await walk(sender, source, view, window, deadline)
        copy = _StagedCopy(sender, source[1], keys[len(PARTS) :], birth.life, view, now, deadline)
        first_missing = await copy.stage(request)
        if first_missing:
            if view == lost:  # the session is as before, so nothing was reclaimed meanwhile: the entry is lost
                raise missing(request.source, first_missing)
            lost = view
            continue
        outcome = await _ask(sender, keys, [*common, *copy.facts(request.source), ""], request, now, deadline)
        if outcome.status is not Status.MOVED:  # else the staged copy was gone
            return outcome


async def _ask(
    sender: Sender, keys: tuple[bytes, ...], args: list[Any], request: ForkRequest, now: str, deadline: float
) -> ChangeOutcome:
    reply = await sender.change(scripts.FORK, keys, args, now, deadline)
    return outcome_of(reply, request.target, Fork())


def _refusal(request: ForkRequest, view: SessionView) -> ChangeOutcome | None:
    session = view.session
    version, life = (session.info.version, session.info.life) if session else (0, "")
    if request.expected_version not in (None, version) or request.expected_life not in (None, life):
        return ChangeOutcome(Status.CONFLICT, life, version)
    if view.status is not Status.FOUND:
        return ChangeOutcome(view.status, life, version)
    return None


class _StagedCopy:
    """A copy of a session's view, under staged keys, which no read looks at."""

    def __init__(
        self, sender: Sender, log_key: bytes, staged: Keys, life: str, view: SessionView, now: str, deadline: float
    ) -> None:
        self._sender = sender
        self._log_key = log_key
        self._staged = staged
        self._life = life
        self._view = view
        self._now = now
        self._deadline = deadline
        self._jumps = jumps_between(view.window.ranges)
        self._entries = self._others = 0

    def facts(self, origin: str) -> list[Any]:
        """Return the arguments of fork.lua."""
        state, session = self._view.state, self._view.session
        dimension = "" if session is None or session.dimension is None else session.dimension
        staged = self._entries, self._others, len(self._jumps)
        facts = {} if session is None else session.info.facts
        return [state_text(state), state.head, dimension, origin, *staged, facts_text(facts)]

    async def stage(self, request: ForkRequest) -> int:
        """Write the copy. Returns the first seq that should be there and is not; 0 if all are."""
        view, session = self._view, self._view.session
        visible = clip(view.window.ranges, view.state.floor + 1, view.state.head)
        others = [(seq, seq) for seq in (*view.others, *view.state.kept)]
        seqs = list(chain.from_iterable([range(first, last + 1) for first, last in sorted(others + visible)]))
        await self._forget()
        began = time.monotonic()
        for start in range(0, len(seqs), STEP):
            some = seqs[start : start + STEP]
            log = FetchedEntries(self._sender, self._log_key, self._deadline, session.info.life if session else "")
            await log.fetch(merge([(seq, seq) for seq in some]))
            for seq in some:
                if seq not in log.values:
                    await self._forget()
                    return seq
            rows = [(seq, log.kind_of(seq), log.values[seq]) for seq in some]
            await put(self._sender, self._staged, self._life, StagedRows(rows), self._now, self._deadline)
            self._entries += len(some)
            self._others += sum(seq in log.other_kinds for seq in some)
            await self._expect(request, began, len(seqs))
        await put(self._sender, self._staged, self._life, StagedRows(jumps=self._jumps), self._now, self._deadline)
        return 0

    async def _expect(self, request: ForkRequest, began: float, total: int) -> None:
        """Raise MemoryStoreBackendError if the rest will take longer than the time left, going by the steps so far."""
        now = time.monotonic()
        needed = (now - began) * total / self._entries
        if now + needed * (1 - self._entries / total) <= self._deadline:
            return
        with suppress(MemoryStoreBackendError):  # it expires by itself, too
            await self._forget()
        raise MemoryStoreBackendError(
            f"a fork of session {request.source!r} copies {total:,} entries. That takes about {needed * 1.5:.0f} s "
            f"here, and there were {self._deadline - began:.1f} s: fork from a store opened with a larger timeout",
            outcome="not_written",
        )

    async def _forget(self) -> None:
        await self._sender.send(self._staged[0], [("UNLINK", *self._staged)], self._deadline, change=True)


def jumps_between(ranges: Sequence[Range]) -> list[Jump]:
    """Return the jumps of a path of these ranges, oldest first."""
    jumps: list[Jump] = []
    before = 0
    for first, last in ranges:
        if first > 1:
            jumps.append((first, before))
        before = last
    return jumps
