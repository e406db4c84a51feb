"""Writers that go on whatever happens to their server, and the check that nothing they were told was a lie.

What a writer does is written once; it runs in threads over `everturn.open`, or in tasks over `everturn.open_async`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any, Self

import everturn
from everturn import ChatMessage, MemoryStoreBackendError
from everturn.backend import drive
from everturn.testing.servers import wait_until

TURN = 2  # messages
FACES = ["threads", "tasks"]
REST = 0.02  # seconds after an error: who is told that the server is gone need not ask a thousand times
SILENCES = 12  # one in five finds no change on its way, where all share one connection
GIVES_UP = 60.0  # seconds after which a writer no longer believes that its change can be made


class Ledger:
    """Outcomes that the writers were told, turn by turn (session and key), and the number of changes of every kind."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[str, str]] = []
        self.doubtful: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.kinds: dict[str, list[str]] = {}
        self.errors: list[MemoryStoreBackendError] = []
        self.failures: list[BaseException] = []

    @property
    def count(self) -> int:
        return len(self.acknowledged) + sum(map(len, self.kinds.values()))

    def progress(self, more: int) -> None:
        """Return when so many more changes have been acknowledged."""
        wanted = self.count + more
        self._wait(lambda: self.count >= wanted, "the writers went on")

    def trouble(self, more: int) -> None:
        """Return when so many more errors have been raised."""
        wanted = len(self.errors) + more
        self._wait(lambda: len(self.errors) >= wanted, "the writers had errors")

    def hang(self, hang: Callable[[], object], resume: Callable[[], object], more: int) -> None:
        """Have the server say nothing until so many more errors have been raised, with a change on its way.

        At the moment that it falls silent all writers may just be reading or connecting; then it does so again.
        """
        for _ in range(SILENCES):
            self.progress(60)
            try:
                hang()
                self.trouble(more)
            finally:
                resume()
            if any(error.outcome == "unknown" for error in self.errors):
                break
        else:
            raise AssertionError("no change was ever in doubt")
        self.progress(60)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(lambda: condition() or bool(self.failures), what, GIVES_UP)
        assert self.failures == []

    def note(self, session_id: str, key: str, error: MemoryStoreBackendError | None) -> None:
        if error is None:
            self.acknowledged.append((session_id, key))
        else:
            self.errors.append(error)
            (self.doubtful if error.outcome == "unknown" else self.refused).append((session_id, key))

    def check(self, store: Any) -> None:
        """Every acknowledged turn is there once, in one piece, under its key. What was refused is not there; what is in
        doubt is there once after a retry with its key. Sessions changed in every way had each change made once."""
        assert self.failures == []
        assert self.count
        self._check_turns(store)
        for session_id, kinds in self.kinds.items():
            assert store.state(session_id).version == len(kinds)
            assert [change.kind for change in reversed(store.changes(session_id, limit=1024))] == kinds[-1024:]
        assert store.verify().ok

    def _check_turns(self, store: Any) -> None:
        there = {name: self._texts(store, name) for name in {name for name, _ in self.acknowledged + self.refused}}
        assert [(name, key) for name, key in self.refused if key in there[name]] == [], "not_written was written"
        assert [(name, key) for name, key in self.acknowledged if key not in there[name]] == [], "a turn was lost"
        for session_id, key in self.doubtful:
            store.add_messages(session_id, turn(key), key=key)
        for session_id, key in self.acknowledged:
            assert store.add_messages(session_id, turn(key), key=key).replayed
        wanted = self.acknowledged + self.doubtful
        for session_id in {session_id for session_id, _ in wanted}:
            assert {key for name, key in wanted if name == session_id} == self._texts(store, session_id)

    @staticmethod
    def _texts(store: Any, session_id: str) -> set[str]:
        texts = [message.content for message in store.get_history(session_id)]
        assert texts[::TURN] == texts[1::TURN], "a turn was torn"
        counts = Counter(texts[::TURN])
        assert set(counts.values()) <= {1}, "a turn is there twice"
        return set(counts)


def turn(key: str) -> list[ChatMessage]:
    return [ChatMessage("user", key), ChatMessage("assistant", key)]


# --- what a writer does ----------------------------------------------------------------------------------------------

Rest = Callable[[], Awaitable[None]]
Writer = Callable[[Any, Ledger, int, Callable[[], bool], Rest], Awaitable[None]]


async def _settled(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def turns(store: Any, ledger: Ledger, writer: int, is_over: Callable[[], bool], rest: Rest) -> None:
    """Turns to sessions that all writers share, each with a key of its own. An error is noted, and the next one tried.

    A session gets at most so many that the store remembers all their keys.
    """
    number = 0
    while not is_over():
        number += 1
        session_id, key = f"s{number // 40}", f"{writer}-{number}"
        try:
            await _settled(store.add_messages(session_id, turn(key), key=key))
        except MemoryStoreBackendError as exc:
            ledger.note(session_id, key, exc)
            await rest()
        else:
            ledger.note(session_id, key, None)


CHANGES: dict[str, Callable[[Any, str, Any, str | None], Any]] = {
    "append": lambda store, name, _, key: store.add_messages(name, turn("x"), key=key),
    "snapshot": lambda store, name, _, key: store.save_snapshot(name, key=key),
    "rollback": lambda store, name, snapshot, key: store.rollback_to_snapshot(name, snapshot, key=key),
    "undo": lambda store, name, _, key: store.undo(name, key=key),
    "clear": lambda store, name, _, key: store.clear(name, key=key),
    "trim": lambda store, name, _, key: store.trim(name, max_messages=2, key=key),
    "replace": lambda store, name, _, key: store.replace(name, turn("y"), after=0, key=key),
    "ttl": lambda store, name, _, key: store.set_ttl(name, 1000, key=key),
    "facts": lambda store, name, _, key: store.set_facts(name, {"at": key or str(time.monotonic_ns())}, key=key),
    "delete_snapshot": lambda store, name, snapshot, key: store.delete_snapshot(name, snapshot, key=key),
}
# Each finds something to do after the one before it, again and again.
ROUND = (
    *("append", "snapshot", "append", "rollback", "undo", "clear", "undo", "trim", "undo", "replace", "undo", "ttl"),
    "facts",
    "delete_snapshot",
)


async def every_kind(store: Any, ledger: Ledger, writer: int, is_over: Callable[[], bool], rest: Rest) -> None:
    """Every kind of change in turn, to a session of its own. An error is noted, and the same change tried again with
    the same key: it is made once, so it makes the next version."""

    async def insist(kind: str, snapshot: Any, number: int) -> Any:
        gives_up = time.monotonic() + GIVES_UP
        while True:
            try:
                return await _settled(CHANGES[kind](store, f"own{writer}", snapshot, str(number)))
            except MemoryStoreBackendError as exc:
                ledger.errors.append(exc)
                if time.monotonic() > gives_up:
                    raise
                await rest()

    await _rounds(ledger, f"own{writer}", is_over, insist)


async def without_keys(store: Any, ledger: Ledger, writer: int, is_over: Callable[[], bool], _: Rest) -> None:
    """Changes of every kind without a key: only the store's own call id stands between a retry and a second change.

    An error ends it, for nobody could tell whether the change was made."""

    async def once(kind: str, snapshot: Any, _: int) -> Any:
        return await _settled(CHANGES[kind](store, f"bare{writer}", snapshot, None))

    await _rounds(ledger, f"bare{writer}", is_over, once)


async def _rounds(ledger: Ledger, name: str, is_over: Callable[[], bool], make: Callable[..., Awaitable[Any]]) -> None:
    snapshot = None
    kinds = ledger.kinds.setdefault(name, [])
    for kind in cycle(ROUND):
        made = await make(kind, snapshot, len(kinds))
        kinds.append(kind)
        assert made.version == len(kinds), f"the {kind} made version {made.version}, not {len(kinds)}"
        snapshot = made if kind == "snapshot" else snapshot
        if is_over():
            return


# --- where they run --------------------------------------------------------------------------------------------------


class Writers:
    """So many writers of each kind over one store, in threads or in tasks, until the end of the block."""

    def __init__(self, kind: str, url: str, ledger: Ledger, *work: Writer, count: int = 4, **options: Any) -> None:
        self._ledger = ledger
        self._over = threading.Event()
        self._started = threading.Event()
        self._jobs = [(writer, number) for writer in work or (turns,) for number in range(count)]
        run = self._in_tasks if kind == "tasks" else self._in_threads
        self._thread = threading.Thread(target=self._guarded, args=(run, url, options))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _guarded(self, run: Callable[..., None], *args: Any) -> None:
        try:
            run(*args)
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the test looks at it
            self._ledger.failures.append(exc)
        finally:
            self._started.set()

    def _in_threads(self, url: str, options: dict[str, Any]) -> None:
        everturn.open(url, **options | {"timeout": 60}).close()  # as below
        with everturn.open(url, **options) as store:
            threads = [threading.Thread(target=self._guarded, args=(self._drive, store, job)) for job in self._jobs]
            for thread in threads:
                thread.start()
            self._started.set()
            for thread in threads:
                thread.join()

    def _drive(self, store: Any, job: tuple[Writer, int]) -> None:
        async def rest() -> None:
            time.sleep(REST)  # noqa: ASYNC251 - this is a thread

        writer, number = job
        drive(writer(store, self._ledger, number, self._over.is_set, rest))  # type: ignore[arg-type]  # a coroutine

    def _in_tasks(self, url: str, options: dict[str, Any]) -> None:
        async def main() -> None:
            # Once with time enough: in a fresh process the drivers are imported now.
            await (await everturn.open_async(url, **options | {"timeout": 60})).close()
            async with await everturn.open_async(url, **options) as store:
                self._started.set()
                rest = lambda: asyncio.sleep(REST)  # noqa: E731 - named for the reader
                over = self._over.is_set
                await asyncio.gather(*(writer(store, self._ledger, n, over, rest) for writer, n in self._jobs))

        asyncio.run(main())
