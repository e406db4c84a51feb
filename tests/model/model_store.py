"""A store in plain tuples and dicts, written from the promises of DESIGN.md: what the real one is compared with.

It knows nothing of heads, floors and jumps: a state is the list of entries that lead to now, and which of them are
hidden; a snapshot is a copy of it; undo is a stack of such copies. It is as slow as it is plain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from everturn import (
    ChatMessage,
    InvalidInput,
    KeyReused,
    LeaseLost,
    SessionNotFound,
    SnapshotNotFound,
    Summary,
    VersionConflict,
)

UNDO_STEPS = 10


class Refused(Exception):
    """The model's word for an error of the store: its type, and for a conflict the actual version."""

    def __init__(self, error: type[Exception], actual: int | None = None) -> None:
        super().__init__(error.__name__, actual)
        self.error = error
        self.actual = actual


@dataclass(frozen=True)
class Stored:
    """An entry and its place: the turn is the seq of the turn's first entry. A fold's summary stands for `hides`."""

    seq: int
    turn: int
    entry: Any
    hides: frozenset[int] = frozenset()


@dataclass(frozen=True)
class State:
    """The entries that lead here, in order, and the seqs among them that a trim or clear has hidden."""

    path: tuple[Stored, ...] = ()
    hidden: frozenset[int] = frozenset()

    @property
    def shown(self) -> list[Stored]:
        return [item for item in self.path if item.seq not in self.hidden]

    @property
    def visible(self) -> list[Stored]:
        """Without summaries of folds that were undone: what they stand for is not hidden."""
        return [item for item in self.shown if item.hides <= self.hidden]

    @property
    def messages(self) -> list[Stored]:
        return [item for item in self.visible if isinstance(item.entry, ChatMessage)]

    @property
    def seqs(self) -> set[int]:
        return {item.seq for item in self.shown}

    def hiding(self, seqs: set[int]) -> State:
        return replace(self, hidden=self.hidden | seqs)


@dataclass(frozen=True)
class Step:
    """What undo goes back to; `path` is where the change led."""

    kind: str
    before: State
    path: tuple[Stored, ...]


@dataclass
class Change:
    """One line of the change log; `state` is None once compact has taken entries that it shows."""

    version: int
    kind: str
    seqs: tuple[int, ...]
    key: str | None
    content: object
    snapshot: int | None
    state: State | None


@dataclass
class Session:
    life: int
    ttl: float | None
    forked_from: str | None = None
    version: int = 0
    last_seq: int = 0
    state: State = field(default_factory=State)
    snapshots: dict[int, tuple[str | None, int, State]] = field(default_factory=dict)
    undo: list[Step] = field(default_factory=list)
    log: list[Change] = field(default_factory=list)
    stored: dict[int, Stored] = field(default_factory=dict)
    dimension: int | None = None
    expires_at: float | None = None
    facts: dict[str, str] = field(default_factory=dict)
    effects: dict[str, tuple[str, int]] = field(default_factory=dict)  # status and attempt, by key

    def with_key(self, key: str) -> Change | None:
        """The change made with the key, if it counts still: while its turn leads to now (or it wrote none)."""
        on_path = {item.seq for item in self.state.path}
        for change in reversed(self.log):
            if change.key == key and (not change.seqs or change.seqs[-1] in on_path):
                return change
        return None

    def roots(self) -> list[State]:
        return [self.state, *(state for _, _, state in self.snapshots.values()), *(step.before for step in self.undo)]


@dataclass(frozen=True)
class Done:
    """A receipt. `changed` says that the session was changed by this call."""

    life: int
    version: int
    seqs: tuple[int, ...] = ()
    replayed: bool = False
    changed: bool = True
    snapshot: int | None = None


@dataclass
class Lease:
    """The latest lease of a session. `life` is that of the session when it was taken, None if there was none."""

    holder: int
    until: float
    life: int | None


Expected = tuple[int, int | None] | None  # a version, and the life where one is named


class ModelStore:
    """All sessions of one namespace. `lives` and `snapshot_ids` number what the real store names at random."""

    def __init__(
        self, clock: Callable[[], float], ttl: float | None, lives: count[int], snapshot_ids: count[int]
    ) -> None:
        self.clock = clock
        self.ttl = ttl
        self.lives = lives
        self.snapshot_ids = snapshot_ids
        self.sessions: dict[str, Session] = {}
        self.leases: dict[str, Lease] = {}

    def live(self, name: str) -> Session | None:
        session = self.sessions.get(name)
        if session is None or (session.expires_at is not None and session.expires_at <= self.clock()):
            return None
        return session

    # --- changes -----------------------------------------------------------------------------------------------

    def append(
        self,
        name: str,
        entries: Sequence[Any],
        *,
        after: int | None = None,
        hides: tuple[int, int] | None = None,
        **how: Any,
    ) -> Done:
        """Append a turn; with `after`, replace what follows that seq, in an undoable step.

        Summaries that stand for what stays hidden are written again before the turn. `hides`: the seqs up to which all
        is hidden, and all but summaries. (None: as far as the hidden entries tell.)
        """

        def apply(session: Session) -> tuple[int, ...] | None:
            lengths = {len(entry.embedding) for entry in entries if isinstance(entry, Summary)}
            if len(lengths | ({session.dimension} - {None})) > 1 and lengths:
                raise Refused(InvalidInput)
            path = session.state.path
            if after is not None:
                if after != 0 and after not in {item.seq for item in path}:
                    raise Refused(InvalidInput)
                path = tuple(item for item in path if item.seq <= after)
            if not entries and path == session.state.path:
                return None
            session.dimension = session.dimension or next(iter(lengths), None)
            before = session.state
            hidden = before.hidden & {item.seq for item in path}
            place = session.last_seq + 1
            copies = carried(before, path, entries, hides or (0, max(before.hidden, default=0)), place)
            first = place + len(copies)
            turn = tuple(Stored(seq, first, entry) for seq, entry in enumerate(entries, first))
            session.stored |= {item.seq: item for item in copies + turn}
            session.last_seq += len(copies + turn)
            session.state = State(path + copies + turn, hidden)
            if after is not None:
                self._undoable(session, "replace", before)
            return tuple(item.seq for item in turn)

        kind = "append" if after is None else "replace"
        return self._change(name, kind, apply, content=(kind, after, repr(entries)), creates=True, **how)

    def trim(
        self,
        name: str,
        *,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        count_tokens: Callable[[ChatMessage], int] | None = None,
        keep_system: bool = True,
        planned: set[int] | None = None,
        **how: Any,
    ) -> Done:
        """Promise 14. `planned` is what to hide, if that was decided before something else happened."""

        def apply(session: Session) -> tuple[int, ...] | None:
            before = session.state
            hide = planned
            if hide is None:
                hide = trimmed(before.visible, max_messages, max_tokens, count_tokens, keep_system=keep_system)
            if not hide:
                return None
            session.state = before.hiding(hide)
            self._undoable(session, "trim", before)
            return ()

        content = ("trim", max_messages, max_tokens, keep_system)
        return self._change(name, "trim", apply, content=content, absent=None, **how)

    def clear(self, name: str, **how: Any) -> Done:
        def apply(session: Session) -> tuple[int, ...] | None:
            before = session.state
            if not before.visible:
                return None
            session.state = before.hiding(before.seqs)
            self._undoable(session, "clear", before)
            return ()

        return self._change(name, "clear", apply, content="clear", absent=None, **how)

    def fold(self, name: str, summary: Summary, planned: set[int], **how: Any) -> Done:
        """Promise 17: hide what was planned, and append the summary that stands for the messages of it."""

        def apply(session: Session) -> tuple[int, ...] | None:
            before = session.state
            hides = frozenset(item.seq for item in before.messages if item.seq in planned)
            seq = session.last_seq = session.last_seq + 1
            stored = Stored(seq, seq, summary, hides)
            session.stored[seq] = stored
            session.state = State((*before.path, stored), before.hidden | planned)
            self._undoable(session, "fold", before)
            return (seq,)

        return self._change(name, "fold", apply, content="fold", **how)

    def rollback(self, name: str, to: int, **how: Any) -> Done:
        def apply(session: Session) -> tuple[int, ...] | None:
            before, target = session.state, self.state_at(session, to)
            if before == target:
                return None
            session.state = target
            self._undoable(session, "rollback", before)
            return ()

        return self._change(name, "rollback", apply, content=("version", to), **how)

    def rollback_to_snapshot(self, name: str, snapshot: int, **how: Any) -> Done:
        def apply(session: Session) -> tuple[int, ...] | None:
            if snapshot not in session.snapshots:
                raise Refused(SnapshotNotFound)
            before, target = session.state, session.snapshots[snapshot][2]
            if before == target:
                return None
            session.state = target
            self._undoable(session, "rollback", before)
            return ()

        return self._change(name, "rollback", apply, content=("rollback", snapshot), **how)

    def undo(self, name: str, *, expected: Expected = None, **how: Any) -> Done:
        def apply(session: Session) -> tuple[int, ...] | None:
            if not session.undo:
                raise Refused(InvalidInput)
            step = session.undo[-1]
            now = session.state
            if step.kind in ("trim", "clear") or (step.kind == "fold" and now.path != step.path):
                session.state = State(now.path, step.before.hidden)
            elif now.path != step.path and expected is None:
                raise Refused(VersionConflict, session.version)
            else:
                session.state = step.before
            session.undo.pop()
            return ()

        return self._change(name, "undo", apply, content="undo", expected=expected, **how)

    def save_snapshot(self, name: str, label: str | None = None, **how: Any) -> Done:
        number = next(self.snapshot_ids)

        def apply(session: Session) -> tuple[int, ...] | None:
            session.snapshots[number] = (label, session.version + 1, session.state)
            return ()

        content = ("snapshot", label)
        return self._change(name, "snapshot", apply, content=content, creates=True, snapshot=number, **how)

    def delete_snapshot(self, name: str, snapshot: int, **how: Any) -> Done:
        def apply(session: Session) -> tuple[int, ...] | None:
            if session.snapshots.pop(snapshot, None) is None:
                raise Refused(SnapshotNotFound)
            return ()

        return self._change(name, "delete_snapshot", apply, content=("delete_snapshot", snapshot), **how)

    def set_ttl(self, name: str, seconds: float | None, **how: Any) -> Done:
        def apply(session: Session) -> tuple[int, ...] | None:
            session.ttl = seconds
            return ()

        return self._change(name, "ttl", apply, content=("ttl", seconds), **how)

    def set_facts(self, name: str, facts: dict[str, str | None], **how: Any) -> Done:
        def apply(session: Session) -> tuple[int, ...] | None:
            before = session.facts
            session.facts = {key: value for key, value in (before | facts).items() if value is not None}
            return () if session.facts != before else None

        content = ("facts", tuple(sorted(facts.items())))
        return self._change(name, "facts", apply, content=content, creates=True, **how)

    def begin_effect(self, name: str, key: str, *, repeats: int = 0, **how: Any) -> Done:
        """Promise 19: begin it, unless it was begun before and has not failed since."""

        def effect(session: Session) -> tuple[int, ...] | None:
            status, attempt = session.effects.get(key, ("failed", 0))
            if status != "failed" and (status, attempt) != ("started", repeats):
                return None
            session.effects[key] = ("started", attempt + 1)
            return ()

        return self._change(name, "begin_effect", effect, content=("begin", key), creates=True, **how)

    def end_effect(self, name: str, key: str, status: str, *, attempt: int = 0, **how: Any) -> Done:
        """End an effect that is started, as "finished" or "failed"; with an attempt only that one."""

        def effect(session: Session) -> tuple[int, ...] | None:
            before, latest = session.effects.get(key, ("failed", 0))
            if before != "started" or attempt not in (0, latest):
                raise Refused(InvalidInput)
            session.effects[key] = (status, latest)
            return ()

        kind = "finish_effect" if status == "finished" else "fail_effect"
        return self._change(name, kind, effect, content=("end", key, status), **how)

    def _undoable(self, session: Session, kind: str, before: State) -> None:
        session.undo = [*session.undo, Step(kind, before, session.state.path)][-UNDO_STEPS:]

    def _change(
        self,
        name: str,
        kind: str,
        apply: Callable[[Session], tuple[int, ...] | None],
        *,
        content: object,
        key: str | None = None,
        expected: Expected = None,
        snapshot: int | None = None,
        creates: bool = False,
        absent: type[Exception] | None = SessionNotFound,
        holder: int | None = None,
    ) -> Done:
        """One change: the key first, then the expected version, then the lease of its holder, then whatever the action
        needs; all or nothing."""
        session = self.live(name)
        if session is not None and key is not None and (first := session.with_key(key)) is not None:
            if first.content != content:
                raise Refused(KeyReused)
            return Done(session.life, first.version, first.seqs, replayed=True, changed=False, snapshot=first.snapshot)
        check_expected(session, expected)
        if holder is not None and self.holder(name) != holder:
            raise Refused(LeaseLost)
        if session is None and not creates:
            if absent is not None:
                raise Refused(absent)
            return Done(0, 0, changed=False)
        target = session or Session(next(self.lives), self.ttl)
        seqs = apply(target)
        if seqs is None:
            return Done(target.life, target.version, changed=False) if session else Done(0, 0, changed=False)
        self._exists(name, target)
        self._record(target, Change(target.version + 1, kind, seqs, key, content, snapshot, target.state))
        return Done(target.life, target.version, seqs, snapshot=snapshot)

    def _exists(self, name: str, session: Session) -> None:
        """A life that begins takes over the lease that is held of its name."""
        if self.sessions.get(name) is not session and self.holder(name) is not None:
            self.leases[name].life = session.life
        self.sessions[name] = session

    def _record(self, session: Session, change: Change) -> None:
        session.version = change.version
        session.log.append(change)
        session.expires_at = None if session.ttl is None else self.clock() + session.ttl

    # --- leases ------------------------------------------------------------------------------------------------

    def holder(self, name: str) -> int | None:
        """Who holds the lease of a session now."""
        lease, session = self.leases.get(name), self.live(name)
        if lease is None or lease.until <= self.clock() or lease.life not in (None, session and session.life):
            return None
        return lease.holder

    def take_lease(self, name: str, holder: int, seconds: float) -> bool:
        """Take the lease, or renew that of the holder. Returns whether it was had."""
        if self.holder(name) not in (None, holder):
            return False
        session = self.live(name)
        self.leases[name] = Lease(holder, self.clock() + seconds, session and session.life)  # type: ignore[arg-type]
        return True

    def release_lease(self, name: str) -> None:
        self.leases[name].until = 0.0

    # --- copies and housekeeping -------------------------------------------------------------------------------

    def fork(
        self, name: str, new_name: str, *, at: object = None, key: str | None = None, expected: Expected = None
    ) -> Done:
        content = ("fork", name, at)
        target = self.live(new_name)
        if target is not None:
            first = target.with_key(key) if key is not None else None
            if first is None or first.content != content:
                raise Refused(InvalidInput if first is None else KeyReused)
            return Done(target.life, first.version, replayed=True, changed=False)
        source = self.live(name)
        check_expected(source, expected)
        if source is None:
            raise Refused(SessionNotFound)
        state = self.state_at(source, at)
        target = Session(next(self.lives), self.ttl, forked_from=name, state=state, dimension=source.dimension)
        target.last_seq = state.path[-1].seq if state.path else 0
        target.stored = {item.seq: item for item in state.shown}
        target.facts = source.facts
        self._exists(new_name, target)
        self._record(target, Change(1, "fork", (), key, content, None, state))
        return Done(target.life, 1)

    def erase(self, name: str) -> tuple[int, int]:
        """How many entries and snapshots went. (Of this life; what expired before may have been reaped or not.)"""
        session = self.sessions.pop(name, None)
        self.leases.pop(name, None)
        return (0, 0) if session is None else (len(session.stored), len(session.snapshots))

    def compact(self, name: str, remembered: int, *, drop_undo: bool = False) -> int:
        """Reclaim entries that no root shows, and changes that are older than the remembered ones. Of these, a change
        with a key stays if it had no turn, or its turn stays. With `drop_undo`, no undo step is a root any more.

        Returns how many entries went."""
        session = self.live(name)
        if session is None:
            return 0
        if drop_undo:
            session.undo = []
        needed = set().union(*(state.seqs for state in session.roots()))
        for change in session.log:
            if change.state is not None and not change.state.seqs <= needed:
                change.state = None
        gone = session.stored.keys() - needed
        session.stored = {seq: item for seq, item in session.stored.items() if seq in needed}
        old, latest = session.log[:-remembered], session.log[-remembered:]
        keyed = [change for change in old if change.key and (not change.seqs or change.seqs[-1] in session.stored)]
        session.log = keyed + latest
        return len(gone)

    # --- reads -------------------------------------------------------------------------------------------------

    def state_at(self, session: Session | None, at: object) -> State:
        """`at` is None, a version, or ("snapshot", its number)."""
        if at is None or at == 0:
            return session.state if session is not None and at is None else State()
        if isinstance(at, tuple):
            if session is None or at[1] not in session.snapshots:
                raise Refused(SnapshotNotFound)
            return session.snapshots[at[1]][2]
        state = next((change.state for change in session.log if change.version == at), None) if session else None
        if state is None:
            raise Refused(InvalidInput)
        return state

    def history(
        self,
        name: str,
        *,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        at: object = None,
    ) -> list[Stored]:
        shown = [
            item
            for item in self.state_at(self.live(name), at).messages
            if (before is None or item.seq < before) and (after is None or item.seq > after)
        ]
        if limit is None or len(shown) <= limit:
            return shown
        shown = shown[len(shown) - limit :]
        while shown and (results_of(shown[0].entry) or shown[0].entry.role == "tool"):
            shown.pop(0)
        return shown


def check_expected(session: Session | None, expected: Expected) -> None:
    version, life = (session.version, session.life) if session else (0, 0)
    if expected is not None and (expected[0] != version or expected[1] not in (None, life)):
        raise Refused(VersionConflict, version)


# --- what a replace carries along -------------------------------------------------------------------------------


def carried(
    before: State, path: tuple[Stored, ...], entries: Sequence[Any], hides: tuple[int, int], place: int
) -> tuple[Stored, ...]:
    """Copies of the summaries that a replace drops, of those that stand for entries which stay hidden.

    From the newest to the oldest, one is left out if those that stay tell of all that it tells of these entries, and of
    no more that goes.
    """
    cleared, floor = hides
    after = path[-1].seq if path else 0
    dropped = [item for item in before.visible[::-1] if isinstance(item.entry, Summary) and item.seq > after]

    def told(summary: Summary) -> frozenset[int]:
        return frozenset(range(summary.covers[0], min(summary.covers[1], after) + 1))

    def is_needed(summary: Summary) -> bool:
        (first, last), stays = summary.covers, min(after, floor)
        return cleared < stays and cleared < last and first <= stays

    ages: list[tuple[Summary, Stored | None]] = [(entry, None) for entry in entries if isinstance(entry, Summary)]
    ages += [(item.entry, item) for item in dropped]
    ages = [(summary, item) for summary, item in ages if is_needed(summary)]
    kept: list[Stored] = []
    for age, (summary, item) in enumerate(ages):
        others = [other for at, (other, _) in enumerate(ages) if at < age and told(other) >= told(summary)]
        others = [other for other in others if told(other) > told(summary) or other.covers[1] <= summary.covers[1]]
        others += [
            other
            for other, _ in ages[age + 1 :]
            if told(other) == told(summary) and other.covers[1] < summary.covers[1]
        ]
        stands = summary.covers[1] <= floor
        if item is not None and not any(other.covers[1] <= floor or not stands for other in others):
            kept.insert(0, item)
    hidden = {item.seq for item in path} & before.hidden
    return tuple(replace(item, seq=seq, turn=place, hides=item.hides & hidden) for seq, item in enumerate(kept, place))


# --- what a trim keeps, tried out one by one -------------------------------------------------------------------


def calls_of(message: ChatMessage) -> set[str]:
    parts = message.content if isinstance(message.content, list) else []
    return {call["id"] for call in message.tool_calls or []} | {
        part["id"] for part in parts if part["type"] == "tool_use"
    }


def results_of(message: ChatMessage) -> set[str]:
    parts = message.content if isinstance(message.content, list) else []
    own = {message.tool_call_id} if message.tool_call_id else set()
    return own | {part["tool_use_id"] for part in parts if part["type"] == "tool_result"}


def trimmed(
    visible: Sequence[Stored],
    max_messages: int | None,
    max_tokens: int | None,
    count_tokens: Callable[[ChatMessage], int] | None,
    *,
    keep_system: bool,
) -> set[int]:
    """The seqs that a trim hides: every number of newest turns is tried, and the best that is allowed taken."""
    messages = [item for item in visible if isinstance(item.entry, ChatMessage)]
    turns = sorted({item.turn for item in messages})
    system = [item for item in messages if keep_system and item.entry.role in ("system", "developer")]

    def staying(start: int) -> list[Stored]:
        return [item for item in messages if item.turn >= start or item in system]

    def fits(start: int) -> bool:
        stay = staying(start)
        return (max_messages is None or len(stay) <= max_messages) and (
            max_tokens is None or sum(count_tokens(item.entry) for item in stay) <= max_tokens
        )

    def whole(start: int) -> bool:
        """Every result that stays has its call: the nearest one of that id before it, if there is any."""
        stay = {item.seq for item in staying(start)}
        for index, item in enumerate(messages):
            for call_id in results_of(item.entry) if item.seq in stay else ():
                calls = [earlier.seq for earlier in messages[:index] if call_id in calls_of(earlier.entry)]
                if calls and calls[-1] not in stay:
                    return False
        return True

    allowed = [start for start in turns if whole(start)]  # the most turns first
    if not allowed:
        return set()
    start = next((start for start in allowed if fits(start)), allowed[-1])
    stay = {item.seq for item in staying(start)}
    if len(stay) == len(messages):
        return set()
    return {
        item.seq
        for item in visible
        if item.seq < start and item.seq not in stay and not isinstance(item.entry, Summary)
    }
