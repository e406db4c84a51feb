"""Random walks over every operation, on a real SQLite file and on a pure model; after every step they agree.

EVERTURN_DEEP=1 walks for an hour or so, along other paths each time (EVERTURN_SEEDS=n of them, from EVERTURN_SEED on);
without it the walks are few and always the same. EVERTURN_SHRINK=1 looks for the shortest walk that fails.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import everturn
from everturn import (
    ChatMessage,
    CorruptEntry,
    Effect,
    EffectInDoubt,
    InvalidInput,
    KeyReused,
    Lease,
    LeaseHeld,
    LeaseLost,
    MemoryStore,
    MemoryStoreError,
    Receipt,
    Record,
    SessionNotFound,
    Snapshot,
    SnapshotNotFound,
    Summary,
    ToolCall,
)
from everturn.backend import Status, drive
from everturn.backends._shared import verification as soundness_module
from everturn.backends.sqlite import apply_change as changes_module
from everturn.backends.sqlite import backend as backend_module
from everturn.backends.sqlite import compaction as compaction_module
from everturn.backends.sqlite import maintenance as upkeep_module
from everturn.backends.sqlite import page_checksums
from everturn.backends.sqlite import reads as reads_module
from everturn.backends.sqlite import session_row as session_row_module
from everturn.backends.sqlite import verify as verify_module
from everturn.errors import MemoryStoreBackendError
from tests.model.model_store import Done, ModelStore, Refused, Session, State, Stored, calls_of, results_of, trimmed
from tests.tiers import first
from tests.unit.prompt_rules import refused_by_anthropic, refused_by_openai

DEEP = os.environ.get("EVERTURN_DEEP") == "1"

WALKS = settings(
    # Beyond nine, hypothesis runs mostly variations of walks it has been on; new seeds go to new places.
    max_examples=9,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=False,
    # To shorten a walk that failed takes minutes, and is worth it only where somebody is about to look.
    phases=[Phase.generate, Phase.shrink] if os.environ.get("EVERTURN_SHRINK") == "1" else [Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
SEEDS = range(6)
if DEEP:
    start = int(os.environ.get("EVERTURN_SEED", random.randrange(10**9)))
    SEEDS = range(start, start + int(os.environ.get("EVERTURN_SEEDS", "500")))

# Ids that a careless backend would mix up. The other namespace has sessions of the same names.
NAMES = ("a", "A", "a%", "ä")
NAMESPACES = ("", "other")
EVERYWHERE = [(namespace, name) for namespace in NAMESPACES for name in NAMES]
STORE_TTL = 5_000.0
# Far in the future, so that the view `history`, which goes by SQLite's clock, never sees a session expire by itself.
BEGINNING = 4_000_000_000.0


@dataclass(frozen=True)
class How:
    """How a change is made: through which of two stores on the file, with which key, expectation and lease (counted
    from the latest), and whether its first reply is lost."""

    store: int = 0
    key: str | None = None
    expected: str | None = None
    lost: bool = False
    lease: int | None = None


hows = st.builds(
    How,
    store=st.integers(0, 1),
    key=st.sampled_from([None] * 9 + ["k1", "k2", "k3"]),
    expected=st.sampled_from([None] * 11 + ["now", "now", "state", "receipt", "behind", "ahead"]),
    lost=st.sampled_from([False] * 7 + [True]),
    lease=st.sampled_from([None] * 5 + [0, 0, 1]),
)
places = st.tuples(st.sampled_from(("",) * 5 + NAMESPACES), st.sampled_from(NAMES[:1] * 8 + NAMES))

# What a turn is made of. Calls and results get their ids when the turn is appended.
pieces = st.one_of(
    st.tuples(st.sampled_from(["user", "assistant", "system", "developer"]), st.integers(0, 9)),
    st.tuples(st.sampled_from(["user", "assistant", "system"]), st.integers(0, 9)),
    st.tuples(st.sampled_from(["call", "use", "unknown fields", "tool_call", "record"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["result", "part"]), st.integers(0, 3)),
    st.tuples(st.just("summary"), st.integers(0, 6)),
)
turns = st.lists(pieces, min_size=1, max_size=4)
numbers = st.integers(0, 40)


def is_system(message: ChatMessage) -> bool:
    return message.role in ("system", "developer")


def count_tokens(message: ChatMessage) -> int:
    return len(message.text)


class FlakyBackend:
    """Loses the reply to a change that did land, and sees to a clock that tests can move."""

    def __init__(self, store: MemoryStore, clock: Any) -> None:
        self.lose = False
        backend = store._operations
        backend.backend._clock = clock
        self._change, self._fork = backend.backend.change, backend.backend.fork
        backend.backend.change, backend.backend.fork = self.change, self.fork
        backend.runtime.sleep = self._sleep

    async def change(self, request: Any, deadline: float) -> Any:
        return self._answer(await self._change(request, deadline))

    async def fork(self, request: Any, deadline: float) -> Any:
        return self._answer(await self._fork(request, deadline))

    def _answer(self, outcome: Any) -> Any:
        if self.lose and outcome.status is not Status.SUMMARY_DROPPED:
            self.lose = False
            raise MemoryStoreBackendError("the reply was lost", outcome="unknown", transient=True)
        return outcome

    async def _sleep(self, seconds: float) -> None:
        pass


class Walk(RuleBasedStateMachine):
    """One walk. `remembered` is how many changes the store remembers after a compaction."""

    remembered = 1024

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="everturn-walk-"))
        self.file = self.folder / "walk.db"
        self.now = BEGINNING
        self.patches = pytest.MonkeyPatch()
        # Small steps and batches, so that short walks see more than one of each.
        self.patches.setattr(upkeep_module, "STEP", 3)
        self.patches.setattr(reads_module, "BATCH", 3)
        self.patches.setattr(backend_module, "REAP_EVERY", 5)
        self.patches.setattr(changes_module, "REMEMBERED", self.remembered)
        self.patches.setattr(compaction_module, "REMEMBERED", self.remembered)
        self.patches.setattr(soundness_module, "REMEMBERED", self.remembered)
        self.patches.setattr(reads_module, "REMEMBERED", self.remembered)
        self.patches.setattr(session_row_module, "REMEMBERED", self.remembered)
        self.patches.setattr(verify_module, "REMEMBERED", self.remembered)
        self.patches.setattr(upkeep_module, "LONGEST", 0.0)
        self.patches.setattr(compaction_module, "CHUNK", 2)
        lives, snapshot_ids = count(1), count(1)
        self.models = {name: ModelStore(self.clock, STORE_TTL, lives, snapshot_ids) for name in NAMESPACES}
        self.stores: dict[tuple[str, int], MemoryStore] = {}
        self.flaky: dict[tuple[str, int], FlakyBackend] = {}
        for namespace in NAMESPACES:
            for number in (0, 1):
                self.open(namespace, number)
        self.sql = page_checksums.connect(str(self.file))
        self.lives: dict[int, str] = {0: ""}
        self.snapshots: dict[int, Snapshot] = {}
        self.receipts: list[Receipt] = []
        self.calls: list[tuple[Any, ...]] = []
        self.leases: dict[tuple[str, str], list[Lease]] = {}  # of each session, as they were taken
        self.taken_by: dict[int, MemoryStore] = {}  # the store of each, which may be closed since
        self.tokens: dict[int, tuple[int, int]] = {}  # of each life, the latest lease and its token
        self.call_ids = self.steps = 0
        self.half_compacted: set[int] = set()  # lives of which compact has done a step, and perhaps not all
        self.touched: set[tuple[str, str]] = set()  # what the latest step may have changed

    def clock(self) -> float:
        return self.now

    def open(self, namespace: str, number: int, file: Path | None = None) -> MemoryStore:
        url = f"sqlite:///{file or self.file}"
        store = everturn.open(url, namespace=namespace, ttl=STORE_TTL, synchronous="OFF")
        flaky = FlakyBackend(store, self.clock)
        if file is None:
            self.stores[namespace, number], self.flaky[namespace, number] = store, flaky
        return store

    def teardown(self) -> None:
        self.patches.undo()
        self.sql.close()
        for store in self.stores.values():
            store.close()
        shutil.rmtree(self.folder)

    # --- one change, on both -----------------------------------------------------------------------------------

    def change(
        self, place: tuple[str, str], method: str, how: How, *args: Any, model_method: str | None = None, **named: Any
    ) -> Done | None:
        """Make a change on both, and compare what they say. Numbers of snapshots become the store's ids."""
        self.calls.append((place, method, how, args, model_method, named))
        self.touched |= {place, (place[0], args[0])} if method == "fork" else {place}
        namespace, name = place
        model, store = self.models[namespace], self.stores[namespace, how.store]
        expected, real_expected = self.expectation(place, how)
        model_named = {"expected": expected, "key": how.key} | named
        leased = {}
        if method != "fork" and (lease := self.some_lease(place, how)) is not None:
            leased, model_named["holder"] = {"lease": lease}, id(lease)
        if method == "replace":
            model_named["hides"] = self.hides(place)
        try:
            done: Done | Refused = getattr(model, model_method or method)(name, *args, **model_named)
        except Refused as refused:
            done = refused
        real_args = [self.real(method, value) for value in args]
        real_named = {name: self.real(method, value) for name, value in named.items()}
        flaky = self.flaky[namespace, how.store]
        flaky.lose = how.lost
        try:
            answer = getattr(store, method)(
                name, *real_args, key=how.key, expected_version=real_expected, **leased, **real_named
            )
        except MemoryStoreError as error:
            answer = error
        flaky.lose = False
        self.compare(place, method, how, done, answer)
        return None if isinstance(done, Refused) else done

    def hides(self, place: tuple[str, str]) -> tuple[int, int]:
        """Read up to which seqs a session hides all, and all but summaries: the model knows entries only."""
        query = "SELECT cleared, floor FROM sessions WHERE namespace = ? AND session_id = ? AND ended = 0"
        return next(iter(self.sql.execute(query, place).fetchall()), (0, 0))

    def compare(self, place: tuple[str, str], method: str, how: How, done: Done | Refused, answer: Any) -> None:
        if isinstance(done, Refused):
            assert type(answer) is done.error, f"{answer!r} instead of {done}"
            if done.actual is not None:
                assert answer.actual == done.actual
            return
        assert not isinstance(answer, MemoryStoreError), f"{answer!r} instead of {done}"
        if done.snapshot is not None:
            known = self.snapshots.setdefault(done.snapshot, answer)
            assert answer == known
            assert answer.version == done.version
            return
        assert (answer.version, answer.seqs) == (done.version, done.seqs)
        assert answer.replayed == (done.replayed or (how.lost and done.changed))
        assert answer.life == self.lives.setdefault(done.life, answer.life)
        assert len(set(self.lives.values())) == len(self.lives)
        self.receipts.append(answer)

    def real(self, method: str, value: Any) -> Any:
        """What the store is given where the model is given a number, or a tuple, for a snapshot."""
        if isinstance(value, tuple) and value[0] == "snapshot":
            value = value[1]
        elif not (method.endswith("_snapshot") and isinstance(value, int)):
            return value
        snapshot = self.snapshots.get(value)
        return "no such snapshot" if snapshot is None else snapshot if value % 2 else snapshot.id

    def expectation(self, place: tuple[str, str], how: How) -> tuple[Any, Any]:
        """The expected version as the model and as the store are told it."""
        namespace, name = place
        session = self.models[namespace].live(name)
        version, life = (session.version, session.life) if session else (0, 0)
        match how.expected:
            case "now":
                return (version, None), version
            case "behind":
                return (max(0, version - 1), None), max(0, version - 1)
            case "ahead":
                return (version + 1, None), version + 1
            case "state":
                return (version, life), self.stores[namespace, how.store].state(name)
            case "receipt" if self.receipts:
                receipt = self.receipts[-1 - version % min(3, len(self.receipts))]
                lives = {real: number for number, real in self.lives.items()}
                return (receipt.version, lives[receipt.life]), receipt
        return None, None

    def entries(self, pieces: list[tuple[str, int]]) -> list[Any]:
        return [self.entry(kind, number) for kind, number in pieces]

    def entry(self, kind: str, number: int) -> Any:
        text = "Wörter "[:number]
        match kind:
            case "call":
                self.call_ids += 1
                calls = [{"id": f"c{self.call_ids}", "function": {"name": "f"}}]
                return ChatMessage("assistant", None, tool_calls=calls, id=f"m{number}")
            case "use":
                self.call_ids += 1
                return ChatMessage("assistant", [{"type": "tool_use", "id": f"c{self.call_ids}", "input": {}}])
            case "result":
                return ChatMessage("tool", text, tool_call_id=f"c{max(0, self.call_ids - number)}")
            case "part":
                result = {"type": "tool_result", "tool_use_id": f"c{max(0, self.call_ids - number)}"}
                return ChatMessage("user", [result, {"type": "text", "text": text}], metadata={"n": number})
            case "unknown fields":
                return ChatMessage.from_dict({"role": "user", "content": text, "colour": [number]})
            case "tool_call":
                return ToolCall("f", {"x": number}, call_id="c1", result=[None], duration=0.5)
            case "record":
                return Record("note", {"deep": [number, "Wort"]})
            case "summary":
                vectors = [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (-1.0, 0.0), (2.0, 0.0), (0.0, 0.0)]
                embedding = (1.0, 2.0, 3.0) if number == 6 else vectors[number]
                return Summary(f"sum {number}", embedding, (1, number))
        return ChatMessage(kind, text)

    def one_length(self, pieces: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """No two lengths of embeddings in one call: that is refused before anything is asked of the backend."""
        summaries = [number for kind, number in pieces if kind == "summary"]
        if not summaries or (6 in summaries) == all(number == 6 for number in summaries):
            return pieces
        return [piece for piece in pieces if piece != ("summary", 6)]

    # --- turns -------------------------------------------------------------------------------------------------

    @initialize(first=turns, second=turns)
    def begin(self, first: list[tuple[str, int]], second: list[tuple[str, int]]) -> None:
        for pieces in (first, second):
            self.append(("", "a"), How(), pieces)

    @rule(place=places, how=hows, pieces=turns)
    def append(self, place: tuple[str, str], how: How, pieces: list[tuple[str, int]]) -> None:
        self.change(place, "append", how, self.entries(self.one_length(pieces)))

    @rule(place=places, how=hows, pieces=turns)
    def add_messages(self, place: tuple[str, str], how: How, pieces: list[tuple[str, int]]) -> None:
        messages = [entry for entry in self.entries(pieces) if isinstance(entry, ChatMessage)]
        self.change(place, "add_messages", how, messages, model_method="append")

    @rule(place=places, how=hows, human=st.text("xy", max_size=2), ai=st.text("zß", max_size=2))
    def save_context(self, place: tuple[str, str], how: How, human: str, ai: str) -> None:
        self.touched.add(place)
        namespace, name = place
        model, store = self.models[namespace], self.stores[namespace, how.store]
        entries = [ChatMessage("user", human), ChatMessage("assistant", ai)]
        expected, real_expected = self.expectation(place, how)
        try:
            done: Done | Refused = model.append(name, entries, key=how.key, expected=expected)
        except Refused as refused:
            done = refused
        try:
            answer: Any = store.save_context(name, human, ai, key=how.key, expected_version=real_expected)
        except MemoryStoreError as error:
            answer = error
        self.compare(place, "save_context", How(how.store), done, answer)
        if isinstance(done, Done) and done.changed and ai:
            assert store.load_memory(name)[-1] == {"human": human, "ai": ai}

    @rule(place=places, how=hows, number=st.integers(0, 6))
    def add_summary(self, place: tuple[str, str], how: How, number: int) -> None:
        (entry,) = self.entries([("summary", number)])
        self.change(place, "append", how, [entry])

    @rule(place=places, how=hows, pieces=st.lists(pieces, max_size=2), where=numbers, exact=st.booleans())
    def replace(self, place: tuple[str, str], how: How, pieces: list[tuple[str, int]], where: int, exact: bool) -> None:
        after = where if exact else self.somewhere_on_the_path(place, where)
        self.change(place, "replace", how, self.entries(self.one_length(pieces)), model_method="append", after=after)

    def somewhere_on_the_path(self, place: tuple[str, str], where: int) -> int:
        session = self.models[place[0]].live(place[1])
        path = session.state.path if session else ()
        return path[-(where % len(path)) - 1].seq if path and where % 7 else 0

    @rule(place=places, most=st.integers(1, 4), where=numbers, pieces=st.lists(pieces, max_size=1))
    def trim_and_edit(self, place: tuple[str, str], most: int, where: int, pieces: list[tuple[str, int]]) -> None:
        """What a trim kept may be dropped by a replace, and both be taken back."""
        self.change(place, "append", How(), [ChatMessage("system", "so"), ChatMessage("user", "it goes")])
        self.change(place, "append", How(), [ChatMessage("user", "on")])
        self.change(place, "trim", How(1), max_messages=most)
        after = self.somewhere_on_the_path(place, where)
        self.change(place, "replace", How(), self.entries(self.one_length(pieces)), model_method="append", after=after)
        if where % 2:
            self.change(place, "undo", How(1))

    # --- moving the head ---------------------------------------------------------------------------------------

    @rule(place=places, how=hows, label=st.sampled_from([None, "x", "ü"]))
    def save_snapshot(self, place: tuple[str, str], how: How, label: str | None) -> None:
        self.change(place, "save_snapshot", how, label)

    def some_snapshot(self, place: tuple[str, str], which: int) -> int:
        """Mostly one of this session's; else any there ever was, or none."""
        session = self.models[place[0]].live(place[1])
        own = list(session.snapshots) if session else []
        if own and which % 8:
            return own[which % len(own)]
        return which % (len(self.snapshots) + 1)

    @rule(place=places, how=hows, which=numbers)
    def rollback(self, place: tuple[str, str], how: How, which: int) -> None:
        self.change(place, "rollback_to_snapshot", how, self.some_snapshot(place, which))

    @rule(place=places, how=hows, back=st.integers(0, 6))
    def rollback_to_a_version(self, place: tuple[str, str], how: How, back: int) -> None:
        session = self.models[place[0]].live(place[1])
        self.change(place, "rollback", how, abs((session.version if session else 0) - back + 1))

    @rule(place=places, how=hows, which=numbers)
    def delete_snapshot(self, place: tuple[str, str], how: How, which: int) -> None:
        self.change(place, "delete_snapshot", how, self.some_snapshot(place, which))

    @rule(place=places, how=hows)
    def undo(self, place: tuple[str, str], how: How) -> None:
        self.change(place, "undo", how)

    @rule(place=places, times=st.integers(2, 11))
    def undo_all(self, place: tuple[str, str], times: int) -> None:
        for _ in range(times):
            if self.change(place, "undo", How(expected="now")) is None:
                break

    @rule(place=places, times=st.integers(9, 11), keep=st.booleans(), compact=st.booleans())
    def push_out_undo_steps(self, place: tuple[str, str], times: int, keep: bool, compact: bool) -> None:
        """Ten are kept; what only older ones could reach is compact's. A snapshot still shows what it showed."""
        if keep:
            self.change(place, "append", How(), [self.entry("summary", 1), ChatMessage("user", "below the trim")])
            self.change(place, "append", How(), [ChatMessage("user", "last")])
            self.change(place, "trim", How(), max_messages=1)
            self.change(place, "save_snapshot", How(), "kept")
        for number in range(times):
            self.change(place, "append", How(), [ChatMessage("user", f"{number}")])
            self.change(place, "clear", How(1))
        if compact:
            self.compact(place, 0, drop_undo=False)

    @rule(place=places, key=st.sampled_from(["k1", "k2", "k3"]), where=numbers)
    def retry_a_turn_dropped_long_ago(self, place: tuple[str, str], key: str, where: int) -> None:
        """Compact may forget where branches began, but not which turns are on them."""
        turn = [ChatMessage("user", f"{where}")]
        after = self.somewhere_on_the_path(place, where)
        self.change(place, "append", How(0, key), turn)
        self.change(place, "replace", How(), [ChatMessage("user", "instead")], model_method="append", after=after)
        self.push_out_undo_steps(place, 11, keep=False, compact=True)
        self.change(place, "append", How(1, key), turn)

    # --- shortening --------------------------------------------------------------------------------------------

    @rule(place=places, how=hows, most=st.integers(0, 5), keep_system=st.sampled_from([True, True, False]))
    def trim_messages(self, place: tuple[str, str], how: How, most: int, keep_system: bool) -> None:
        self.change(place, "trim", how, max_messages=most, keep_system=keep_system)

    @rule(place=places, how=hows, most=st.integers(0, 30), messages=st.none() | st.integers(0, 6))
    def trim_tokens(self, place: tuple[str, str], how: How, most: int, messages: int | None) -> None:
        self.change(place, "trim", how, max_tokens=most, max_messages=messages, count_tokens=count_tokens)

    @rule(
        place=places,
        most=st.integers(0, 2),
        what=st.sampled_from(["append", "append", "clear", "undo", "rollback", "replace"]),
        pieces=turns,
    )
    def trim_while_another_works(
        self, place: tuple[str, str], most: int, what: str, pieces: list[tuple[str, int]]
    ) -> None:
        """The plan is made outside the transaction. Where what it saw is still so, and only more came behind it, it
        holds; else it is made again, as if the trim had come later. (If there was nothing to hide, it came earlier.)"""
        self.touched.add(place)
        namespace, name = place
        model = self.models[namespace]
        session = model.live(name)
        if session is None or not session.state.messages:
            return
        seen = session.state
        planned: set[int] | None = trimmed(seen.visible, most, 1000, count_tokens, keep_system=True)
        entries = [entry for entry in self.entries(pieces) if not isinstance(entry, Summary)]
        others_work = {
            "append": lambda: self.change(place, "append", How(1), entries),
            "clear": lambda: self.change(place, "clear", How(1)),
            "undo": lambda: self.change(place, "undo", How(1, expected="now")),
            "rollback": lambda: self.change(place, "rollback_to_snapshot", How(1), self.some_snapshot(place, most)),
            "replace": lambda: self.change(place, "replace", How(1), [], model_method="append", after=0),
        }
        interfere = iter([others_work[what]])

        def count_and_interfere(message: ChatMessage) -> int:
            next(interfere, lambda: None)()
            return count_tokens(message)

        answer = self.stores[namespace, 0].trim(
            name, max_messages=most, max_tokens=1000, count_tokens=count_and_interfere
        )
        now = session.state
        if planned and (now.path[: len(seen.path)] != seen.path or now.hidden != seen.hidden):
            planned = None
        done = model.trim(name, max_messages=most, max_tokens=1000, count_tokens=count_tokens, planned=planned)
        self.compare(place, "trim", How(), done, answer)

    @rule(
        place=places,
        most=st.integers(1, 3),
        what=st.sampled_from(["", "", "append", "append", "clear", "undo", "rollback", "replace", "trim"]),
        pieces=turns,
        embeds=st.booleans(),
    )
    def fold(self, place: tuple[str, str], most: int, what: str, pieces: list[tuple[str, int]], embeds: bool) -> None:
        """A model is asked outside of everything. A fold holds where what it saw is still so; else it does nothing."""
        self.touched.add(place)
        namespace, name = place
        model, store = self.models[namespace], self.stores[namespace, 0]
        session = model.live(name)
        seen = session.state if session else State()
        planned = trimmed(seen.visible, most, None, None, keep_system=True)
        told: list[tuple[list[ChatMessage], Summary | None]] = []
        entries = [entry for entry in self.entries(pieces) if not isinstance(entry, Summary)]
        others_work: dict[str, Callable[[], Any]] = {
            "append": lambda: self.change(place, "append", How(1), entries),
            "clear": lambda: self.change(place, "clear", How(1)),
            "undo": lambda: self.change(place, "undo", How(1, expected="now")),
            "rollback": lambda: self.change(place, "rollback_to_snapshot", How(1), self.some_snapshot(place, most)),
            "replace": lambda: self.change(place, "replace", How(1), [], model_method="append", after=0),
            "trim": lambda: self.change(place, "trim", How(1), max_messages=most),
        }
        interfere = iter([others_work[what]] if what else [])

        def summarize(messages: list[ChatMessage], earlier: Summary | None) -> str:
            next(interfere, lambda: None)()
            told.append((messages, earlier))
            return f"{len(messages)} messages"

        dimension = (session.dimension if session else None) or 2
        embedding = tuple([0.5] * dimension) if embeds else None
        answer = store.fold(name, summarize, max_messages=most, embed=(lambda _: embedding) if embeds else None)
        if not planned:
            assert (answer, told) == (None, [])
            return
        messages, earlier = told[0]
        assert same(messages, [item for item in seen.messages if item.seq in planned])
        assert session is not None
        now = session.state
        if now.path[: len(seen.path)] != seen.path or now.hidden != seen.hidden or model.live(name) is not session:
            assert answer is None
            return
        first, last = messages[0].seq or 0, messages[-1].seq or 0
        covers = min(first, earlier.covers[0]) if earlier else first, last
        summary = Summary(f"{len(messages)} messages", embedding, covers, extra={"fold": True})
        if embeds:
            session.dimension = dimension
        done = model.fold(name, summary, planned)
        self.compare(place, "fold", How(), done, answer)

    @rule(
        place=places, how=hows, most=st.integers(1, 3), where=numbers, pieces=st.lists(pieces, max_size=2), back=numbers
    )
    def fold_and_edit(
        self, place: tuple[str, str], how: How, most: int, where: int, pieces: list[tuple[str, int]], back: int
    ) -> None:
        """A replace drops the summary of a fold, and keeps it. Mostly it goes back to an entry behind the fold."""
        self.change(place, "append", How(), [ChatMessage("user", "on"), ChatMessage("assistant", "and on")])
        self.change(place, "append", How(1), self.entries(self.one_length(pieces)))
        self.fold(place, most, "", [], bool(where % 2))
        after = self.somewhere_on_the_path(place, back % 4 + 1 if where % 5 else where)
        self.change(place, "replace", how, self.entries(self.one_length(pieces)), model_method="append", after=after)
        if where % 3 == 0:
            self.change(place, "undo", How(1))

    @rule(place=places, most=st.integers(1, 6), which=numbers, key=st.sampled_from(["k1", "k2", "k3"]))
    def read_a_context(self, place: tuple[str, str], most: int, which: int, key: str) -> None:
        namespace, name = place
        store, session = self.stores[namespace, which % 2], self.models[namespace].live(name)
        state = session.state if session else State()
        context = store.get_context(name, max_messages=most)
        assert refused_by_openai(context.messages) is refused_by_anthropic(context.messages) is None
        raw = store.get_context(name, max_messages=most, heal=False)
        shown = [message for message in raw.messages if "summary" not in message.metadata]
        assert raw.left_out == len(state.messages) - len(shown)
        seqs = {message.seq for message in shown}
        assert seqs <= {item.seq for item in state.messages}
        last = max((item.turn for item in state.messages), default=0)
        assert {item.seq for item in state.messages if item.turn == last} <= seqs
        turns = {item.turn for item in state.messages if item.seq in seqs and not is_system(item.entry)}
        assert {item.seq for item in state.messages if item.turn in turns} <= seqs
        folds = [item for item in state.visible if item.hides and item.hides <= state.hidden]
        if folds and not any(item.seq in state.hidden for item in folds):
            assert folds[-1].seq in {summary.seq for summary in raw.summaries}
        assert (raw.version, len(raw.summaries)) == (
            session.version if session else 0,
            len(raw.messages) - len(shown),
        )
        used = session.with_key(key) if session else None
        turn = store.get_turn(name, key)
        assert (None if turn is None else (turn.receipt.version, turn.receipt.seqs)) == (
            None if used is None else (used.version, used.seqs)
        )

    @rule(place=places, how=hows)
    def clear(self, place: tuple[str, str], how: How) -> None:
        self.change(place, "clear", how)

    @rule(namespace=st.sampled_from(NAMESPACES))
    def clear_all(self, namespace: str) -> None:
        self.touched |= set(EVERYWHERE)
        model = self.models[namespace]
        cleared = sum(model.clear(name).changed for name in list(model.sessions))
        assert self.stores[namespace, 0].clear_all() == cleared

    # --- retries -----------------------------------------------------------------------------------------------

    @precondition(lambda self: any(how.key for _, _, how, *_ in self.calls))
    @rule(which=numbers, store=st.integers(0, 1), lost=st.booleans())
    def retry_with_the_same_key(self, which: int, store: int, lost: bool) -> None:
        """Whatever happened since: a rollback, a roll-forward, a trim, another life."""
        keyed = [call for call in self.calls if call[2].key]
        place, method, how, args, model_method, named = keyed[-1 - which % len(keyed)]
        how = How(store, how.key, how.expected if which % 2 else None, lost)
        self.change(place, method, how, *args, model_method=model_method, **named)

    @rule(place=places, key=st.sampled_from(["k1", "k2", "k3"]), number=st.integers(0, 2))
    def append_rollback_and_retry(self, place: tuple[str, str], key: str, number: int) -> None:
        """After a rollback that dropped the turn the key writes again; rolled forward, each branch has its own."""
        entries = [ChatMessage("user", f"keyed {number}")]
        early = self.change(place, "save_snapshot", How(), "early")
        self.change(place, "append", How(0, key), entries)
        late = self.change(place, "save_snapshot", How(1), "late")
        assert early is not None
        assert late is not None
        for snapshot in (early, late, early):
            self.change(place, "rollback_to_snapshot", How(1), snapshot.snapshot)
            self.change(place, "append", How(1, key), entries)

    # --- leases and effects ------------------------------------------------------------------------------------

    def some_lease(self, place: tuple[str, str], how: How) -> Lease | None:
        """The lease that a change names: the latest of its session, or the one before."""
        taken = self.leases.get(place, [])
        return taken[-1 - how.lease % len(taken)] if taken and how.lease is not None else None

    @rule(place=places, number=st.integers(0, 1), seconds=st.sampled_from([0.5, 10.0, 1_500.0, 80_000.0]))
    def take_lease(self, place: tuple[str, str], number: int, seconds: float) -> None:
        namespace, name = place
        model = self.models[namespace]
        try:
            lease = self.stores[namespace, number].lease(name, seconds=seconds)
        except LeaseHeld:
            assert model.holder(name) is not None
            return
        assert model.take_lease(name, id(lease), seconds)
        self.leases.setdefault(place, []).append(lease)
        self.taken_by[id(lease)] = self.stores[namespace, number]
        session = model.live(name)
        if session is not None:
            _, token = self.tokens.get(session.life, (0, 0))
            assert lease.token > token
            self.tokens[session.life] = (id(lease), lease.token)

    @rule(place=places, which=st.integers(0, 3), release=st.booleans())
    def renew_or_release_lease(self, place: tuple[str, str], which: int, release: bool) -> None:
        namespace, name = place
        model, lease = self.models[namespace], self.some_lease(place, How(lease=which))
        if lease is None or not any(self.taken_by[id(lease)] is store for store in self.stores.values()):
            return
        is_held = model.holder(name) == id(lease)
        for one in self.each_lease(lease):
            try:
                one.release() if release else one.renew()
            except LeaseLost:
                assert not is_held
            else:
                assert is_held or release  # to release it when its time is over does no harm
        if is_held and release:
            model.release_lease(name)
        elif is_held:
            assert model.take_lease(name, id(lease), lease.seconds)

    @rule(
        place=places,
        how=hows,
        begins=st.booleans(),
        sleeps=st.sampled_from([0.0, 9.0, 10.0, 2_000.0]),
        taken=st.booleans(),
        which=st.integers(0, 1),
        pieces=turns,
    )
    def sleep_with_a_lease(
        self,
        place: tuple[str, str],
        how: How,
        begins: bool,
        sleeps: float,
        taken: bool,
        which: int,
        pieces: list[tuple[str, int]],
    ) -> None:
        """Whoever slept past its lease is refused, also if nobody took it and nothing moved."""
        self.take_lease(place, 0, 10.0)
        if begins:
            self.change(place, "append", How(lease=0), [ChatMessage("user", "under a lease")])
        if sleeps:
            self.time_passes(sleeps)
        if taken:
            self.take_lease(place, 1, 10.0)
        self.change(place, "append", replace(how, lease=which), self.entries(self.one_length(pieces)))
        self.change(place, "clear", replace(how, lease=which, key=None))

    def each_lease(self, lease: Lease) -> list[Lease]:
        return [lease]

    def effect(self, place: tuple[str, str], method: str, how: How, key: str, *args: Any, **named: Any) -> Any:
        """Begin or end an effect, on the store alone. Returns its answer, or its error."""
        self.touched.add(place)
        namespace, name = place
        _, expected = self.expectation(place, how)
        flaky, lease = self.flaky[namespace, how.store], self.some_lease(place, how)
        flaky.lose = how.lost
        try:
            return getattr(self.stores[namespace, how.store], method)(
                name, key, *args, expected_version=expected, lease=lease, **named
            )
        except MemoryStoreError as error:
            return error
        finally:
            flaky.lose = False

    def effect_of_model(
        self, place: tuple[str, str], how: How, method: str, *args: Any, **named: Any
    ) -> Done | Refused:
        namespace, name = place
        expected, _ = self.expectation(place, how)
        lease = self.some_lease(place, how)
        holder = None if lease is None else id(lease)
        try:
            return getattr(self.models[namespace], method)(name, *args, expected=expected, holder=holder, **named)
        except Refused as refused:
            return refused

    @rule(place=places, how=hows, key=st.sampled_from(["pay", "mail"]), repeats=st.integers(0, 2))
    def begin_effect(self, place: tuple[str, str], how: How, key: str, repeats: int) -> None:
        answer = self.effect(place, "begin_effect", how, key, {"amount": 1}, repeats=repeats)
        done = self.effect_of_model(place, how, "begin_effect", key, repeats=repeats)
        if isinstance(done, Refused):
            assert type(answer) is done.error, f"{answer!r} instead of {done}"
            return
        session = self.models[place[0]].live(place[1])
        assert isinstance(answer, Effect), answer
        assert session is not None
        status, attempt = session.effects[key]
        assert (answer.status, answer.attempt) == ("new" if done.changed else status, attempt)
        if done.changed:
            assert answer.version == done.version

    @rule(
        place=places,
        how=hows,
        key=st.sampled_from(["pay", "mail"]),
        finish=st.booleans(),
        attempt=st.sampled_from([0, 0, 1, 2]),
    )
    def end_effect(self, place: tuple[str, str], how: How, key: str, finish: bool, attempt: int) -> None:
        method, status = ("finish_effect", "finished") if finish else ("fail_effect", "failed")
        answer = self.effect(place, method, how, key, "so", attempt=attempt)
        done = self.effect_of_model(place, how, "end_effect", key, status, attempt=attempt)
        if isinstance(done, Done):
            self.compare(place, method, how, done, answer)
        elif done.error in (InvalidInput, SessionNotFound):
            is_told_again = isinstance(answer, Receipt) and answer.replayed
            assert is_told_again or isinstance(answer, InvalidInput | KeyReused | EffectInDoubt), answer
        else:
            assert type(answer) is done.error, f"{answer!r} instead of {done}"

    @rule(
        place=places,
        how=hows,
        key=st.sampled_from(["pay", "mail"]),
        end=st.sampled_from(["", "", "finish", "fail"]),
        between=st.sampled_from(["", "rollback", "clear", "fold", "compact", "undo", "replace", "sleep"]),
        repeats=st.integers(0, 2),
    )
    def begin_an_effect_again(
        self, place: tuple[str, str], how: How, key: str, end: str, between: str, repeats: int
    ) -> None:
        """No change of the history takes an effect back. The end of a life does."""
        early = self.change(place, "save_snapshot", How(), "before the effect")
        self.begin_effect(place, how, key, 0)
        self.change(place, "append", How(), [ChatMessage("user", "paid"), ChatMessage("assistant", "thanks")])
        if end:
            self.end_effect(place, How(1), key, end == "finish", 0)
        assert early is not None
        match between:
            case "rollback":
                self.change(place, "rollback_to_snapshot", How(1), early.snapshot)
            case "clear" | "undo":
                self.change(place, "clear", How(1))
                if between == "undo":
                    self.change(place, "undo", How())
            case "fold":
                self.fold(place, 1, "", [], embeds=False)
            case "compact":
                self.compact(place, 1, drop_undo=True)
            case "replace":
                self.change(place, "replace", How(), [], model_method="append", after=0)
            case "sleep":
                self.time_passes(STORE_TTL)
        self.begin_effect(place, replace(how, store=1), key, repeats)
        self.end_effect(place, how, key, end != "fail", repeats)

    # --- copies, time, housekeeping ----------------------------------------------------------------------------

    @rule(place=places, how=hows, new=st.sampled_from(NAMES), which=numbers)
    def fork(self, place: tuple[str, str], how: How, new: str, which: int) -> None:
        done = self.change(place, "fork", how, new, at=self.moment(place, which))
        if done is not None and which % 2:
            self.change((place[0], new), "append", How(1), [ChatMessage("user", "in the fork")])

    @rule(place=places, new=st.sampled_from(NAMES), pieces=turns)
    def fork_what_was_trimmed(self, place: tuple[str, str], new: str, pieces: list[tuple[str, int]]) -> None:
        """A summary below the trim goes along."""
        if new == place[1]:
            return
        self.erase((place[0], new), 1)
        self.change(place, "append", How(), [self.entry("summary", 2), *self.entries([("system", 3), ("user", 1)])])
        self.change(place, "append", How(), [entry for entry in self.entries(pieces) if isinstance(entry, ChatMessage)])
        self.change(place, "trim", How(), max_messages=1)
        self.change(place, "fork", How(1), new)

    def moment(self, place: tuple[str, str], which: int) -> Any:
        """Now, a version, or a snapshot; not always one there is."""
        session = self.models[place[0]].live(place[1])
        if which % 4 == 0:
            return None
        if which % 4 == 1:
            return ("snapshot", self.some_snapshot(place, which))
        return which % (session.version + 2 if session else 2)

    @rule(place=places, how=hows, seconds=st.sampled_from([None, 1_000.0, 4_000.0]))
    def set_ttl(self, place: tuple[str, str], how: How, seconds: float | None) -> None:
        self.change(place, "set_ttl", how, seconds)

    @rule(
        place=places,
        how=hows,
        facts=st.dictionaries(st.sampled_from(["user", "title"]), st.sampled_from([None, "42", "43"]), max_size=2),
    )
    def set_facts(self, place: tuple[str, str], how: How, facts: dict[str, str | None]) -> None:
        self.change(place, "set_facts", how, facts)

    @rule(seconds=st.sampled_from([1.0, 999.0, 1_000.0, 4_000.0, STORE_TTL]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.touched |= set(EVERYWHERE)

    @rule(place=places, store=st.integers(0, 1))
    def erase(self, place: tuple[str, str], store: int) -> None:
        namespace, name = place
        self.touched.add(place)
        session = self.models[namespace].live(name)
        entries, snapshots = self.models[namespace].erase(name)
        receipt = self.stores[namespace, store].erase(name)
        assert receipt.complete
        if session is not None:  # else it may have been reaped already
            assert receipt.entries >= entries or session.life in self.half_compacted
            assert receipt.snapshots >= snapshots
        rows = self.sql.execute(
            "SELECT count(*) FROM sessions WHERE namespace = ? AND session_id = ?", (namespace, name)
        )
        assert rows.get == 0

    @rule(place=places, store=st.integers(0, 1), drop_undo=st.booleans())
    def compact(self, place: tuple[str, str], store: int, drop_undo: bool) -> None:
        namespace, name = place
        self.touched.add(place)
        session = self.models[namespace].live(name)
        reclaimed = self.models[namespace].compact(name, self.remembered, drop_undo=drop_undo)
        found = self.stores[namespace, store].compact(name, drop_undo=drop_undo)
        if session is not None and session.life in self.half_compacted:
            self.half_compacted.discard(session.life)
            assert found.entries <= reclaimed
        else:
            assert found.entries == reclaimed
        assert found.sessions == (1 if found.entries else 0)
        self.forget_versions(place)

    @rule(place=places)
    def compact_one_step(self, place: tuple[str, str]) -> None:
        """As if the process had died after it."""
        self.touched.add(place)
        namespace, name = place
        backend: Any = self.stores[namespace, 0]._operations.backend
        plan = drive(backend._read(lambda db: compaction_module.plan(db, name, self.now), float("inf")))
        if plan is None:
            return
        for at in range(min(2, len(plan.chores))):
            drive(backend._write(partial(compaction_module.step, planned=plan, at=at, now=self.clock()), float("inf")))
        if (session := self.models[namespace].live(name)) is not None:
            self.half_compacted.add(session.life)
            left = {
                version
                for (version,) in self.sql.execute("SELECT version FROM changes WHERE session = ?", (plan.number,))
            }
            assert left.issuperset(change.version for change in session.log[-self.remembered :])
            session.log = [change for change in session.log if change.version in left]
            self.forget_versions(place)

    def forget_versions(self, place: tuple[str, str]) -> None:
        """A compaction need not keep a version that shows what no root shows; nor one with summaries, or one that was
        trimmed and might have some: what is kept below a trim is kept for another reason than its neighbours."""
        namespace, name = place
        session = self.models[namespace].live(name)
        if session is None:
            return
        needed = set().union(*(state.seqs for state in session.roots()))
        for change in session.log:
            if change.state is None:
                continue
            try:
                self.stores[namespace, 0].state(name, at=change.version)
            except InvalidInput:
                summaries = [item for item in change.state.visible if isinstance(item.entry, Summary)]
                assert not change.state.seqs <= needed or summaries or change.state.hidden
                change.state = None

    @rule(namespace=st.sampled_from(NAMESPACES))
    def compact_everything(self, namespace: str) -> None:
        self.touched |= set(EVERYWHERE)
        model = self.models[namespace]
        for name in list(model.sessions):
            if (session := model.live(name)) is not None:
                model.compact(name, self.remembered)
                self.half_compacted.discard(session.life)
        self.stores[namespace, 0].compact()
        assert self.stores[namespace, 1].verify().ok
        for name in NAMES:
            self.forget_versions((namespace, name))
        live = [session for model in self.models.values() for name in model.sessions if (session := model.live(name))]
        assert self.sql.execute("SELECT count(*) FROM sessions").get == len(live)
        for table in ("entries", "jumps", "changes", "undo_steps", "snapshots", "facts"):
            strays = f"SELECT count(*) FROM {table} WHERE session > 0 AND session NOT IN (SELECT no FROM sessions)"
            assert self.sql.execute(strays).get == 0

    @rule(namespace=st.sampled_from(NAMESPACES), number=st.integers(0, 1))
    def reopen(self, namespace: str, number: int) -> None:
        self.stores[namespace, number].close()
        self.open(namespace, number)
        self.touched |= set(EVERYWHERE)
        report = self.stores[namespace, number].verify()
        assert report.ok
        assert report.sessions == sum(self.models[namespace].live(name) is not None for name in NAMES)

    # --- reads -------------------------------------------------------------------------------------------------

    @rule(place=places, which=numbers, store=st.integers(0, 1))
    def read_the_past(self, place: tuple[str, str], which: int, store: int) -> None:
        self.agree_on_the_past(place, self.moment(place, which), store)

    def agree_on_the_past(self, place: tuple[str, str], at: Any, store: int) -> None:
        namespace, name = place
        model, real = self.models[namespace], self.stores[namespace, store]
        session = model.live(name)
        try:
            expected: State | type[Exception] = model.state_at(session, at)
        except Refused as refused:
            expected = refused.error
        try:
            seen: Any = real.state(name, at=self.real("state", at)).entries
        except (InvalidInput, SnapshotNotFound) as error:
            seen = type(error)
        if isinstance(expected, State):
            assert not isinstance(seen, type), f"{seen} instead of version {at}"
            assert same(seen, expected.visible)
        else:
            assert seen is expected

    @rule(
        place=places,
        limit=st.none() | st.integers(0, 6),
        before=st.none() | st.integers(0, 12),
        after=st.none() | st.integers(0, 12),
        which=numbers,
    )
    def read_a_window(
        self, place: tuple[str, str], limit: int | None, before: int | None, after: int | None, which: int
    ) -> None:
        """`before` and `after` are seqs of the history, one beside them, or 0."""
        namespace, name = place
        at = self.moment(place, which) if which % 3 == 0 else None
        session = self.models[namespace].live(name)
        seqs = [0, *(seq for item in session.state.path for seq in (item.seq, item.seq + 1))] if session else [0]
        before, after = (None if bound is None else seqs[-bound % len(seqs)] for bound in (before, after))
        try:
            shown = self.models[namespace].history(name, limit=limit, before=before, after=after, at=at)
        except Refused:
            return  # read_the_past looks at these
        window = {"limit": limit, "before": before, "after": after, "at": self.real("get_history", at)}
        messages = self.stores[namespace, which % 2].get_history(name, **window)
        assert same(messages, shown)
        healed = self.stores[namespace, which % 2].get_history(name, heal=True, **window)
        assert refused_by_openai(healed) is refused_by_anthropic(healed) is None

    @rule(place=places, which=numbers, other=numbers)
    def diff(self, place: tuple[str, str], which: int, other: int) -> None:
        namespace, name = place
        model = self.models[namespace]
        session = model.live(name)
        a, b = self.moment(place, which), self.moment(place, other)
        try:
            first, second = model.state_at(session, a), model.state_at(session, b)
        except Refused:
            return
        found = self.stores[namespace, 1].diff(name, self.real("diff", a), self.real("diff", b))
        assert same(found.added, [item for item in second.visible if item not in first.visible])
        assert same(found.removed, [item for item in first.visible if item not in second.visible])

    @rule(place=places, number=st.integers(0, 5), k=st.integers(0, 4))
    def search(self, place: tuple[str, str], number: int, k: int) -> None:
        namespace, name = place
        session = self.models[namespace].live(name)
        shown = [item for item in session.state.visible if isinstance(item.entry, Summary)] if session else []
        shown = [item for item in shown if item.entry.embedding is not None]  # a fold may write one without
        store = self.stores[namespace, 0]
        wanted = self.entry("summary", number).embedding
        if shown and len(shown[0].entry.embedding) != len(wanted):
            with pytest.raises(InvalidInput):
                store.search_summaries(name, wanted, k=k)
            return
        hits = store.search_summaries(name, wanted, k=k)
        scores = [(cosine(item.entry.embedding, wanted), item) for item in shown]
        best = sorted(scores, key=lambda hit: (-hit[0], hit[1].seq))[:k]
        assert [hit.score for hit in hits] == pytest.approx([score for score, _ in best])
        assert same([hit.summary for hit in hits], [item for _, item in best])

    @rule(place=places, text=st.sampled_from(["W", "wÖrter", "wört", "sum 1", "note", "%"]), limit=st.integers(0, 3))
    def find(self, place: tuple[str, str], text: str, limit: int) -> None:
        namespace, name = place
        model, store = self.models[namespace], self.stores[namespace, 0]
        in_all: set[tuple[str, int]] = set()
        for other in model.sessions:
            session = model.live(other)
            holding = [item for item in session.state.visible if mentions(item.entry, text)] if session else []
            in_all |= {(other, item.seq) for item in holding}
            if other == name:
                found = store.find(text, session_id=name, limit=limit)
                assert same([match.entry for match in found], list(reversed(holding))[:limit])
        assert {(match.session_id, match.entry.seq) for match in store.find(text, limit=1000)} == in_all

    @rule(namespace=st.sampled_from(NAMESPACES), limit=st.integers(1, 3), order=st.sampled_from([None, "recent"]))
    def page_through_sessions(self, namespace: str, limit: int, order: Any) -> None:
        self.agree_on_pages(self.stores[namespace, 0], namespace, limit, order)

    def agree_on_pages(self, store: MemoryStore, namespace: str, limit: int, order: Any) -> None:
        model = self.models[namespace]
        live = sorted((name for name in model.sessions if model.live(name)), key=str.encode)
        listed: list[everturn.SessionInfo] = []
        page = None
        while True:
            found = store.sessions(limit=limit, page=page, order=order)
            listed += found.sessions
            if (page := found.next) is None:
                break
        if order is None:
            assert [session.session_id for session in listed] == live
        else:  # at least once, the latest changed first
            assert sorted({session.session_id for session in listed}, key=str.encode) == live
            times = [session.changed_at for session in listed[: len(live)]]
            assert times == sorted(times, reverse=True)
        with_prefix = [name for name in live if name.startswith("a")]
        assert [session.session_id for session in store.sessions("a").sessions] == with_prefix

    @rule(place=places, which=numbers)
    def a_lost_row_is_noticed(self, place: tuple[str, str], which: int) -> None:
        """Promise 11, on a copy of the file."""
        namespace, name = place
        session = self.models[namespace].live(name)
        shown = session.state.visible if session else []
        if not shown:
            return
        lost = shown[which % len(shown)]
        if isinstance(lost.entry, Summary):
            return  # compact cannot tell a summary below a trim from other entries that went, so nor can a read
        copy = self.folder / "copy.db"
        self.sql.execute("VACUUM INTO ?", (str(copy),))
        damaged = page_checksums.connect(str(copy))
        damaged.execute(
            "DELETE FROM entries WHERE ?3 BETWEEN seq AND seq + count - 1 AND session ="
            " (SELECT no FROM sessions WHERE namespace = ?1 AND session_id = ?2 AND ended = 0)",
            (namespace, name, lost.seq),
        )
        assert damaged.changes() == 1
        damaged.close()
        with self.open(namespace, 0, copy) as store:
            assert not store.verify(name).ok
            with pytest.raises(CorruptEntry):
                store.state(name)
            with pytest.raises(CorruptEntry):
                store.get_history(name)
        for file in self.folder.glob("copy.db*"):
            file.unlink()

    # --- after every step --------------------------------------------------------------------------------------

    @invariant()
    def every_session_agrees(self) -> None:
        self.steps += 1
        for place in EVERYWHERE:
            if place not in self.touched and self.steps % 4:
                continue
            namespace, name = place
            session = self.models[namespace].live(name)
            store = self.stores[namespace, self.steps % 2]
            self.agree_on_the_state(store, name, session)
            self.agree_on_the_lease(place)
            if place in self.touched:
                self.agree_on_sql(namespace, name, session)
                if session is None:
                    self.agree_on_nothing(store, name)
                else:
                    self.agree_on_the_rest(store, place, session)
        self.touched = set()

    def agree_on_the_lease(self, place: tuple[str, str]) -> None:
        namespace, name = place
        held = self.stores[namespace, self.steps % 2].get_lease(name)
        holder = self.models[namespace].holder(name)
        assert (held is None) is (holder is None)
        if held is not None:
            (lease,) = (lease for lease in self.leases[place] if id(lease) == holder)
            assert (held.token, held.until) == (lease.token, pytest.approx(self.models[namespace].leases[name].until))

    def agree_on_the_state(self, store: MemoryStore, name: str, session: Session | None) -> None:
        state = store.state(name)
        if session is None:
            assert state == everturn.SessionState(name, 0, 0, (), (), 0, None, None)
            return
        assert same(state.entries, session.state.visible)
        assert (state.version, state.last_seq) == (session.version, session.last_seq)
        assert state.undo_steps == len(session.undo)
        assert (state.ttl, state.forked_from, state.facts) == (session.ttl, session.forked_from, session.facts)
        assert state.snapshots == tuple((label, version) for label, version, _ in session.snapshots.values())
        assert state.life == self.lives.setdefault(session.life, state.life)

    def agree_on_nothing(self, store: MemoryStore, name: str) -> None:
        assert store.get_history(name) == store.list_snapshots(name) == store.changes(name) == []
        assert store.verify(name).entries == 0
        with pytest.raises(SessionNotFound):
            store.info(name)

    def agree_on_the_rest(self, store: MemoryStore, place: tuple[str, str], session: Session) -> None:
        _, name = place
        shown = session.state.visible
        assert same(store.get_history(name), session.state.messages)
        assert same(store.get_tool_calls(name), [item for item in shown if isinstance(item.entry, ToolCall)])
        assert same(store.get_summaries(name), [item for item in shown if isinstance(item.entry, Summary)])
        snapshots = store.list_snapshots(name)
        assert snapshots == [self.snapshots[number] for number in session.snapshots]
        taken = [len(state.messages) for _, _, state in session.snapshots.values()]
        assert [snapshot.messages for snapshot in snapshots] == taken
        effects = [(effect.key, (effect.status, effect.attempt)) for effect in store.get_effects(name)]
        assert sorted(effects) == sorted(session.effects.items())
        facts = store.info(name)
        assert (facts.version, facts.messages, facts.last_seq) == (
            session.version,
            len(session.state.messages),
            session.last_seq,
        )
        assert (facts.snapshots, facts.undo_steps) == (len(session.snapshots), len(session.undo))
        assert facts.expires_at == session.expires_at
        latest = [*reversed(session.log)]
        latest = [change for place_, change in enumerate(latest) if change.version == latest[0].version - place_]
        log = [(change.version, change.kind, change.seqs) for change in latest]
        changes = [(change.version, change.kind, change.seqs) for change in store.changes(name, 10_000)]
        report = store.verify(name)
        assert report.ok, report.problems
        assert changes == log
        assert report.entries == len(session.stored) or session.life in self.half_compacted
        self.agree_on_the_past(place, session.log[len(shown) % len(session.log)].version, 0)
        self.agree_on_windows(store, place, session)
        holding = [item for item in reversed(shown) if mentions(item.entry, "u")]
        assert same([match.entry for match in store.find("U", session_id=name, limit=1000)], holding)

    def agree_on_windows(self, store: MemoryStore, place: tuple[str, str], session: Session) -> None:
        """Another limit and another bound at each step; read_a_window tries them all together."""
        namespace, name = place
        messages = session.state.messages
        bounds = [0, *(item.seq for item in session.state.path), session.last_seq + 1]
        bound = bounds[-1 - self.steps % len(bounds)]
        for window in ({"limit": self.steps % (len(messages) + 2)}, {"before": bound}, {"after": bound}):
            shown = self.models[namespace].history(name, **window)
            assert same(store.get_history(name, **window), shown), window

    def agree_on_sql(self, namespace: str, name: str, session: Session | None) -> None:
        """The stored form is a contract: the view shows what the store shows, and the sizes are right."""
        if session is not None:
            query = "SELECT seq, kind FROM history WHERE namespace = ? AND session_id = ? ORDER BY seq"
            rows = self.sql.execute(query, (namespace, name)).fetchall()
            assert [seq for seq, _ in rows] == [item.seq for item in session.state.shown]
            assert [seq for seq, kind in rows if kind == "message"] == [item.seq for item in session.state.messages]
            query = (
                "SELECT s.bytes,"
                " (SELECT ifnull(sum(octet_length(body) - count + 1), 0) FROM entries WHERE session = s.no)"
                " FROM sessions s WHERE namespace = ? AND session_id = ? AND ended = 0"
            )
            recorded, counted = self.sql.execute(query, (namespace, name)).fetchone()
            assert recorded == counted


def same(entries: Any, items: list[Stored]) -> bool:
    """Whether the entries are these, under these seqs."""
    return [(entry.seq, entry) for entry in entries] == [(item.seq, item.entry) for item in items]


def cosine(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    lengths = sum(x * x for x in a) ** 0.5 * sum(x * x for x in b) ** 0.5
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def mentions(entry: Any, text: str) -> bool:
    """Whether a string of the entry contains the text; the words here differ by case in ASCII letters only."""
    strings = {
        ChatMessage: lambda: [entry.role, entry.text, entry.id or "", entry.tool_call_id or ""],
        ToolCall: lambda: [entry.name, entry.call_id],
        Record: lambda: [entry.body["deep"][1]],
        Summary: lambda: [entry.text],
    }[type(entry)]()
    if isinstance(entry, ChatMessage):
        strings += ["f" if entry.tool_calls else "", *calls_of(entry), *results_of(entry)]
        strings += [part["type"] for part in entry.content] if isinstance(entry.content, list) else []
    lowered = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    return any(
        lowered in "".join(letter.lower() if letter.isascii() else letter for letter in string) for string in strings
    )


class ForgetfulWalk(Walk):
    """The same, remembering so few changes that a compaction forgets keys, versions and where branches began."""

    remembered = 4


@pytest.mark.parametrize("number", SEEDS if DEEP else first(2, SEEDS))
@pytest.mark.parametrize("walk", [Walk, ForgetfulWalk])
def test_the_store_and_the_model_agree_after_every_step(walk: type[Walk], number: int) -> None:
    run_state_machine_as_test(seed(number)(type(walk.__name__, (walk,), {})), settings=WALKS)


def test_a_version_that_shows_a_summary_which_is_gone_cannot_be_read(tmp_path: Path) -> None:
    """Found by breaking the code: no walk came by here. All that the version shows is kept, but for the summary."""
    with everturn.open(f"sqlite:///{tmp_path}/a.db", synchronous="OFF") as store:
        store.append("a", [Summary("gone", (1.0,), (1, 1)), ChatMessage("user", "1")])
        store.clear("a")
        store.add_messages("a", [ChatMessage("user", "2")])
        kept = store.save_snapshot("a")
        store.undo("a")  # the turn that came later stays
        version = store.trim("a", max_messages=1).version
        assert [entry.seq for entry in store.state("a", at=version).entries] == [1, 3]
        store.rollback_to_snapshot("a", kept)
        for _ in range(10):
            store.add_messages("a", [ChatMessage("user", "x")])
            store.clear("a")
        assert store.compact("a").entries == 2
        with pytest.raises(InvalidInput, match="reclaimed"):
            store.state("a", at=version)
        assert [entry.seq for entry in store.state("a", at=kept).entries] == [3]
        assert store.verify().ok
