"""Many appenders at once: 64 async tasks on 64 sessions, 16 threads; on a slow disk and on the real one."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import everturn
from benchmarks.plan import Bar, Plan, Row
from benchmarks.rounds import interleave
from benchmarks.stats import ratio, spread
from everturn.bench.contenders.bare import BareSqlite, BareSqliteSameRows
from everturn.bench.contenders.everturn_store import as_messages, url
from everturn.bench.workload import Message
from everturn.bench.workload import turns as make_turns
from everturn.testing.faults.disks import SlowSyncVFS

TASKS, TASK_TURNS = 64, 5
THREADS, THREAD_TURNS = 16, 20

Rates = dict[str, list[float]]


def measure(plan: Plan) -> Iterator[Row]:
    """Baseline: the bare driver, one commit per append, in one loop on one connection, through the same VFS.

    One connection in one loop is the fastest that one-commit-per-append can be: tasks or threads around it
    would only add hand-overs and lock waits. It writes the same rows; the note says how the two message
    rows alone fare. Figures are turns per second over a whole round, checkpoints included.
    """
    with SlowSyncVFS("bench-slow-sync", seconds=0.001) as slow:
        for disk, vfs, task_bar, thread_bar in (
            ("1 ms per sync", slow.name, Bar(">=", 5.0), Bar(">=", 2.5)),
            ("real disk", None, Bar(">=", 3.0, wanted=True), None),
        ):
            rates = _tasks(plan, plan.path(f"group-commit/tasks, {disk}"), vfs)
            yield _row(f"{TASKS} async appenders on {TASKS} sessions, {disk}", rates, task_bar)
            rates = _threads(plan, plan.path(f"group-commit/threads, {disk}"), vfs)
            yield _row(f"{THREADS} sync threads, {disk}", rates, thread_bar)


def _tasks(plan: Plan, path: Path, vfs: str | None) -> Rates:
    turns = [as_messages(turn) for turn in make_turns(TASK_TURNS)]
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        store = runner.run(everturn.open_async(url(path), **_on(vfs)))
        stack.callback(lambda: runner.run(store.close()))

        async def append_all(session_id: str) -> None:
            for turn in turns:
                await store.add_messages(session_id, turn)

        async def all_tasks() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(TASKS):
                    group.create_task(append_all(f"session-{number}"))

        def one_round() -> float:
            return _rate(lambda: runner.run(all_tasks()), TASKS * TASK_TURNS)

        bare = _bare_rounds(stack, path, vfs, sessions=TASKS, turns=make_turns(TASK_TURNS))
        return interleave({"ours": one_round} | bare, rounds=plan.pick(12, 2))


def _threads(plan: Plan, path: Path, vfs: str | None) -> Rates:
    turns = [as_messages(turn) for turn in make_turns(THREAD_TURNS)]
    with ExitStack() as stack:
        store = stack.enter_context(everturn.open(url(path), **_on(vfs)))
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))

        def append_all(number: int) -> None:
            for turn in turns:
                store.add_messages(f"session-{number}", turn)

        def one_round() -> float:
            return _rate(lambda: list(pool.map(append_all, range(THREADS))), THREADS * THREAD_TURNS)

        bare = _bare_rounds(stack, path, vfs, sessions=THREADS, turns=make_turns(THREAD_TURNS))
        return interleave({"ours": one_round} | bare, rounds=plan.pick(12, 2))


def _bare_rounds(
    stack: ExitStack, path: Path, vfs: str | None, *, sessions: int, turns: Sequence[list[Message]]
) -> dict[str, Callable[[], float]]:
    """Rounds of both bare contenders: the turns of everturn over its sessions, one commit each."""

    def one_round(bare: BareSqlite) -> Callable[[], float]:
        def append_all() -> None:
            for turn in turns:
                for number in range(sessions):
                    bare.add(f"session-{number}", turn)

        return lambda: _rate(append_all, sessions * len(turns))

    rounds = {}
    for name, contender in (("same rows", BareSqliteSameRows), ("2 rows", BareSqlite)):
        home = path / name
        home.mkdir()
        rounds[name] = one_round(stack.enter_context(closing(contender(home, vfs=vfs))))
    return rounds


def _on(vfs: str | None) -> dict[str, str]:
    return {"vfs": vfs} if vfs else {}


def _rate(work: Callable[[], object], turns: int) -> float:
    start = time.perf_counter()
    work()
    return turns / (time.perf_counter() - start)


def _row(name: str, rates: Rates, bar: Bar | None) -> Row:
    return Row(
        name,
        f"{spread(rates['ours']).median:,.0f} turns/s",
        f"{spread(rates['same rows']).median:,.0f} turns/s, a commit each",
        ratio(rates["ours"], rates["same rows"]),
        bar=bar,
        note=f"{ratio(rates['ours'], rates['2 rows']).median:.2f} x the two message rows alone",
    )
