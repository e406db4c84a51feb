"""Judges a simulated world: the order of all changes is known here, so every promise is checked as it is stated.

Each change that a server applies is repeated by the pure model (tests/model/model_store.py), and what is then stored
must be what the model has. Answers are compared with the states that there were while the call was under way.
"""

from __future__ import annotations

from collections.abc import Callable

from everturn import LeaseLost, Unsupported
from everturn.errors import CorruptEntry
from tests.model.model_store import Refused
from tests.simulation import clocks, planned, records
from tests.simulation.leases import TAKES, LeaseRow, LeaseRules, Served
from tests.simulation.model_follower import ModelFollower
from tests.simulation.network import Attempt
from tests.simulation.records import Image, Record, Stored, named, placed, short
from tests.simulation.schedules import Op
from tests.simulation.states import FOREVER

Effects = dict[str, tuple[str, int]]  # status and attempt, by key
MOVES = {"rollback", "undo", "replace", "erase"}
TOLERANCE = 0.02  # seconds: clocks drift while a request is under way


class Judge(ModelFollower):
    """Follows one world. `clock` tells the store's time at a true moment; `peek` reads what is stored."""

    def __init__(
        self,
        ttl: float | None,
        now: Callable[[], float],
        clock: Callable[[float], float],
        peek: Callable[[str], Stored | None],
        steps: Callable[[float, float], list[float]],
        effects: Callable[[str], Effects] | None = None,
        leases: Callable[[str], LeaseRow | None] = lambda _: None,
    ) -> None:
        super().__init__(ttl, now, clock, steps)
        self._peek = peek
        self._peek_effects = effects
        self.leases = LeaseRules(now, clock, steps, self.find, leases)
        self.applied_at: dict[int, list[float]] = {}
        self._lives: dict[int, int] = {}  # the model's life that a call changed first
        self._made: dict[str, list[int]] = {}  # the calls that made the versions of the present life
        self._moves: dict[str, list[tuple[float, Op]]] = {}
        self._writers: dict[str, str] = {}  # the host that made the latest change of each session
        self._repeated: set[int] = set()
        self._repeated_in_time: set[int] = set()  # calls under way that a repeated request applied, and no other
        self._stamps: dict[str, list[tuple[float, int]]] = {}  # changes of sessions and fences: when, by which call
        self._lost: set[int] = set()  # calls that were applied, and that the server has lost since
        self._set_back: set[int] = set()  # calls that were applied late, by a clock that was set back
        self._broken: set[str] = set()  # sessions in which the model cannot follow any more

    # --- data that is lost -------------------------------------------------------------------------------------------

    def image(self) -> Image:
        return Image(self.model.sessions, self._made, self._moves, self._numbers).copy()

    def load(self, moment: float, image: Image | None) -> None:
        """Go on from an earlier moment, or from the start: the server has lost what came after it."""
        self._lost |= {op for op, applied in self.applied_at.items() if applied[-1] > moment}
        before = set(self.model.sessions)
        again = Image({}, {}, {}, {}) if image is None else image.copy()  # it may be loaded twice
        self.model.sessions, self._made = again.sessions, again.made
        self._moves, self._numbers = again.moves, again.numbers
        self._stamps = {name: [one for one in made if one[0] <= moment] for name, made in self._stamps.items()}
        for name in before | set(self.model.sessions):
            self._note(name)

    def served(self, attempt: Attempt, name: str, served: Served) -> None:
        """A request was carried out: see to the lease of its session."""
        is_over = name in self.model.sessions and self._is_over(name)
        self.leases.served(attempt, name, served, is_over=is_over)

    def vanished(self, name: str) -> None:
        """A server has removed a session that expired by its clock."""
        if self.model.sessions.pop(name, None) is not None:
            self._note(name)

    def fence_lowered(self, attempt: Attempt, name: str) -> None:
        """A server found a fence ahead of its clock, and set it to now: it may be before requests that are late."""
        self._stamps.setdefault(name, []).append((self._now(), attempt.op.id))

    # --- changes -----------------------------------------------------------------------------------------------------

    def applied(self, attempt: Attempt, name: str, *, continues: bool = True) -> None:
        """A request changed a session, just now. `continues`: the life that was there before is there still."""
        op, now = attempt.op, self._now()
        self.applied_at.setdefault(op.id, []).append(now)
        others = [moment for moment, by in self._stamps.get(name, ()) if by != op.id]
        erased = [moment for moment, move in self._moves.get(name, ()) if move.kind == "erase"]
        hidden = clocks.is_hidden(attempt, now, others, erased, self._clock, self._steps)
        self._stamps.setdefault(name, []).append((now, op.id))
        if name in self._broken:
            return
        self._check_time(attempt, name, hidden=hidden)
        was_lost = op.id in self._lost
        self._lost.discard(op.id)
        if clocks.is_set_back(attempt, now, self._clock):
            self._set_back.add(op.id)
        self._settle(name, attempt.host.name, is_over=not continues and op.kind != "erase")
        stored = self._peek(name)
        session = self.model.live(name)
        if session is None:
            self._made[name] = []
        before = () if session is None else session.state.path
        made = self._made.setdefault(name, [])
        if op.id in made and op.kind != "erase" and now < self.relaxed_from:
            kind = records.OTHER_CLOCK if hidden else "doubled"
            self.find(kind, f"{named(op)} was applied a second time in one life of {name!r}")
        elif len(self.applied_at[op.id]) > 1 and op.kind not in ("erase", "trim") and now < self.relaxed_from:
            self._check_again(op, name, was_lost=was_lost, hidden=hidden)
        try:
            self._repeat(op, name, stored)
        except Refused as exc:
            self.find("impossible", f"{named(op)} was applied, and the model refuses it: {exc.error.__name__}")
            self._broken.add(name)
            return
        made.append(op.id)
        self._writers[name] = attempt.host.name
        self._lives.setdefault(op.id, self.model.sessions[name].life if name in self.model.sessions else 0)
        adds = (
            op.kind == "replace" and self.model.sessions[name].state.path[: len(before)] == before
        )  # and drops nothing
        if op.kind in MOVES and not adds:
            self._moves.setdefault(name, []).append((now, op))
        self._note(name)
        self._compare(name, stored, named(op))

    def _settle(self, name: str, host: str, *, is_over: bool) -> None:
        """Let the model see a session as the store does, which may end a life a little early, or too late."""
        session = self.model.sessions.get(name)
        if session is None or session.expires_at is None:
            return
        left = session.expires_at - self._clock(self._now())
        if not is_over and -self._late() < left <= 0:
            session.expires_at = None
        elif is_over and left > 0:
            if left > self.early:
                writer = self._writers.get(name, "")  # it told until when the session lives
                misled = writer if writer in self.misled else host
                self.find("expired early", f"the life of {name!r} was ended {left:.3f} s before its time", misled)
            self.vanished(name)

    def _check_time(self, attempt: Attempt, name: str, *, hidden: bool) -> None:
        op, now, sent = attempt.op, self._now(), attempt.sent
        record = self.records[op.id]
        over = record.over
        is_in_time = now <= attempt.until + TOLERANCE
        if now > over and attempt.arrivals > 1 and len(self.applied_at[op.id]) == 1 and is_in_time:
            self.find(records.REPEATED, f"{named(op)} was answered at {over:.3f} and changed nothing; repeated, it did")
            self._repeated.add(op.id)
            return
        if attempt.arrivals > 1 and len(self.applied_at[op.id]) == 1 and is_in_time:
            self._repeated_in_time.add(op.id)
        else:
            self._repeated_in_time.discard(op.id)
        if now <= over + TOLERANCE or now >= self.relaxed_from:
            return
        if clocks.has_ended(self._states.of(name), sent, now, self._clock):
            return
        for moved_at, move in reversed(self._moves.get(name, ())):
            by = self.records[move.id]
            if sent < moved_at and by.outcome == "ok" and by.end is not None and by.end < now and move.id != op.id:
                kind = "behind erasure" if move.kind == "erase" else "behind rollback"
                if op.kind == "append" and self._had(name, op.values, moved_at):
                    kind = "erased came back" if move.kind == "erase" else "dropped came back"
                    if any(mate in self.applied_at for mate in self._mates(op)):
                        kind += ", keyed"  # its caller had sent it again, and that was applied
                self.find(
                    records.OTHER_CLOCK if hidden else kind,
                    f"{named(op)}, sent at {sent:.3f} and given up or answered at {over:.3f}, was applied behind "
                    f"{named(move)}, which was acknowledged at {by.end:.3f}",
                )
                return
        if is_in_time and self._lost & {op.id, *self._mates(op)}:
            return  # it or its key's turn was applied and lost; of a request that comes twice, one brings it back
        kind = records.OTHER_CLOCK if hidden else "late"
        self.find(kind, f"{named(op)}, given up or answered at {over:.3f}, was applied")

    def _check_again(self, op: Op, name: str, *, was_lost: bool, hidden: bool) -> None:
        """Judge a call that is applied again in another life. A trim that is planned anew is another request."""
        first, now = self.applied_at[op.id][-2], self._now()
        erased = [(at, move) for at, move in self._moves.get(name, ()) if move.kind == "erase" and at > first]
        if was_lost or not erased or clocks.has_ended(self._states.of(name), first, now, self._clock):
            return
        moved_at, move = erased[-1]
        kind = records.OTHER_CLOCK if hidden else "doubled"
        if clocks.is_forgotten([at for at, _ in erased], now, self._clock, self._steps):
            kind = records.FORGOTTEN
        behind = f"behind {named(move)} at {moved_at:.3f}"
        self.find(kind, f"{named(op)}, applied at {first:.3f}, was applied again {behind}")

    def _mates(self, op: Op) -> list[int]:
        """Other calls with the key of this one."""
        return [one for one, record in self.records.items() if op.key and record.op.key == op.key and one != op.id]

    def _had(self, name: str, values: tuple[str, ...], before: float) -> bool:
        """Whether the values were to be seen before a moment, and not right behind it."""
        shown = [seen for seen in self._states.of(name) if seen.since < before]
        return any(values[0] in seen.values for seen in shown)

    # --- states ------------------------------------------------------------------------------------------------------

    def _note(self, name: str) -> None:
        self._states.note(name, self._now(), self.model.sessions.get(name), self._writers.get(name, ""))

    def _compare(self, name: str, stored: Stored | None, behind: str) -> None:
        session = self.model.live(name)
        if session is None or stored is None:
            if session is not None or stored is not None:
                has, lacks = ("the store", "the model") if session is None else ("the model", "the store")
                self.find("other state", f"behind {behind} {has} has a session {name!r}, and {lacks} has none")
                self._broken.add(name)
            return
        expected = placed(session.state)
        if stored[1:] != (session.version, expected):
            self.find(
                "other state",
                f"behind {behind} {name!r} is at version {stored[1]} with {short(stored[2])}; "
                f"the model is at {session.version} with {short(expected)}",
            )
            self._broken.add(name)
        elif self._peek_effects is not None and (found := self._peek_effects(name)) != session.effects:
            self.find("other effects", f"behind {behind} {name!r} has {found}; the model has {session.effects}")
            self._broken.add(name)

    # --- answers -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Judge every answer, once all is quiet."""
        for record in self.records.values():
            self._answer(record)
        for name in sorted(set(self.model.sessions) | self._states.names):
            self._settle(name, "", is_over=False)
            if name not in self._broken and not (self._late() and self._peek(name) is None and self._is_over(name)):
                self._compare(name, self._peek(name), "everything")

    def _is_over(self, name: str) -> bool:
        last = list(self._seen(name, self._now(), self._now()))
        return any(seen.state is None for seen in last)

    def _answer(self, record: Record) -> None:
        op = record.op
        applied = self.applied_at.get(op.id, [])
        if op.id in self._repeated:
            return
        name = op.target if op.kind == "fork" else op.session
        if isinstance(record.error, CorruptEntry | Unsupported) or record.outcome == "error":
            self.find("broken", f"{named(op)} raised {record.error!r}")
        is_kept = applied and op.id not in self._lost
        if record.outcome in ("not_written", "refused") and is_kept and self._outlives(record, name):
            kind = "appeared"
            if op.id in self._set_back:
                kind = records.SET_BACK
            elif op.id in self._repeated_in_time:
                kind = records.REPEATED
            self.find(kind, f"{named(op)} failed with {record.error!r}, and was applied at {applied[0]:.3f}")
        if record.end is None or name in self._broken:
            return
        meanwhile = list(self._seen(name, record.begin, record.end))
        has_been = any(seen.state is not None for seen in self._states.of(name))
        is_over = has_been and any(seen.state is None for seen in meanwhile)
        self.leases.answered(record, is_over=is_over)
        if record.outcome == "refused" and op.key and op.kind in ("begin", "finish", "fail"):
            self._refused_effect(record)
        if record.outcome != "ok" or op.kind in TAKES:
            return
        if op.kind == "context":
            # The summary of a fold stands for the one before it, too: the latest is told.
            shown = [(one.values, one.summaries[-1:]) for one in meanwhile]
            if record.result not in shown:
                host = self._told_by(record, name)
                self.find("wrong read", f"{named(op)} saw {record.result}; in its time there was {shown}", host)
        elif op.kind == "read":
            if not any(seen.values == record.result for seen in self._seen(name, record.begin, record.end)):
                shown = [seen.values for seen in self._seen(name, record.begin, record.end)]
                host = record.host if record.result else self._told_by(record, name)
                self.find("wrong read", f"{named(op)} saw {record.result}; in its time there was {shown}", host)
        elif op.kind == "read_at":
            if record.result not in self._shown.get(op.of, ()):
                self.find("wrong read", f"{named(op)} saw {record.result}, not {self._shown.get(op.of)}")
        elif not applied or applied[0] > record.end:
            self._idle(record, name)
        elif op.kind == "fold" and record.result is False and is_kept:
            self.find("appeared", f"{named(op)} said that it did nothing, and was applied at {applied[0]:.3f}")

    def _refused_effect(self, record: Record) -> None:
        """Judge a begin or an end of an effect that was refused, for another reason than its lease."""
        op, end = record.op, record.end or 0.0
        if isinstance(record.error, LeaseLost):
            return
        attempt = self.attempts.get(op.id, 0)
        before = [one.effects.get(op.key or "", ("", 0)) for one in self._seen(op.session, record.begin, end)]
        if op.kind == "begin" or all(status == "started" and attempt in (0, made) for status, made in before):
            host = self._told_by(record, op.session)
            self.find("refused for nothing", f"{named(op)}: {record.error}; in its time there was {before}", host)

    def _outlives(self, record: Record, name: str) -> bool:
        """Whether a call that was applied and failed can be seen to have been: not if that life ended before it did."""
        if record.outcome == "not_written" or record.end is None:
            return True
        at_end = self._seen(name, record.end, record.end)
        if self.applied_at[record.op.id][0] <= record.end and any(seen.state is None for seen in at_end):
            return False
        life = self._lives.get(record.op.id)
        return any(seen.life == life for seen in self._seen(name, record.end, self._now()))

    def _idle(self, record: Record, name: str) -> None:
        """Judge an acknowledged call that changed nothing."""
        op, end = record.op, record.end or 0.0
        seen = list(self._seen(name, record.begin, end))
        match op.kind:
            case "trim":
                fine = any(one.state is None or not planned.plan(op, one) for one in seen)
            case "clear":
                fine = any(not one.values for one in seen)
            case "erase":
                fine = any(one.state is None for one in seen)
            case "rollback":
                fine = any(one.values in self._shown.get(op.of, ()) for one in seen)
            case "append":
                mates = [op.id, *self._mates(op)]
                fine = record.result and any(self.applied_at.get(mate, [FOREVER])[0] <= end for mate in mates)
            case "replace":
                fine = not op.values
            case "fold":
                fine = record.result is False
            case "begin":
                told = {one.effects.get(op.key or "") for one in seen}
                fine = record.result[0] != "new" and record.result in told
            case "finish" | "fail":
                ended = "finished" if op.kind == "finish" else "failed"
                fine = any(one.effects.get(op.key or "", ("", 0))[0] == ended for one in seen)
            case "compact" | "read" | "read_at":
                fine = True
            case _:
                fine = False
        if not fine:
            host = self._told_by(record, name)
            self.find("not done", f"{named(op)} was acknowledged at {end:.3f}, and nothing was done", host)

    def _told_by(self, record: Record, name: str) -> str:
        """The host whose clock may be why a call saw no session: its own, or one that told until when that lives."""
        told = [seen.by for seen in self._seen(name, record.begin, record.end or 0.0) if seen.expires is not None]
        return next((host for host in told if host in self.misled), record.host)
