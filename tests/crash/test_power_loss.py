"""The power goes at every sync of a long run: what was acknowledged is there, the rest whole or not at all.

The disk is PowerLossVFS: it forgets what was not synced. A run without a cut says what the store holds after each step;
a run with a cut must leave what it held after the last acknowledged step, or after the one that was under way.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

import everturn
from everturn import ChatMessage, MemoryStore, MemoryStoreBackendError, Snapshot, Summary, ToolCall
from everturn.backends.sqlite import schema
from everturn.testing.faults.disks import PowerLossVFS
from tests.tiers import first

NOW, NEXT = schema.CURRENT, schema.CURRENT + 1

A, B, COPY = "a", "b", "a copy"
CHECKPOINT_PAGES = 25  # often enough that a checkpoint falls between the steps, and into them


@dataclass
class Run:
    """A store on a disk that can lose power, and what the steps remember."""

    path: Path
    disk: PowerLossVFS
    synchronous: str
    store: MemoryStore | None = None
    snapshots: list[Snapshot] = field(default_factory=list)

    def open(self) -> None:
        url = f"sqlite:///{self.path}"
        self.store = everturn.open(url, vfs=self.disk.name, synchronous=self.synchronous)
        self.store._operations.backend._database._writer.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None


Step = Callable[[Run], object]


def turn(session: str, number: int, size: int = 200) -> Step:
    asked, answered = f"question {number} " + "x" * size, f"answer {number} " + "y" * size
    return lambda run: run.store.save_context(session, asked, answered)


def snapshot(run: Run) -> None:
    run.snapshots.append(run.store.save_snapshot(A, f"snapshot {len(run.snapshots)}"))


def migrate(run: Run) -> None:
    """Close the store, and open it as the next version of everturn would."""
    run.close()
    with as_next_version(run.path.parent):
        run.open()


def reopen(run: Run) -> None:
    run.close()
    with as_next_version(run.path.parent):
        run.open()


SCRIPT: list[Step] = [
    lambda run: run.open(),
    *(turn(A, number) for number in range(6)),
    snapshot,
    lambda run: run.store.add_tool_call(A, ToolCall(name="look up", arguments={"order": 1234})),
    lambda run: run.store.add_summary(A, Summary(text="so far", embedding=[1.0, 2.0], covers=(1, 4))),
    turn(B, 0),
    turn(A, 6, size=9000),
    lambda run: run.store.rollback_to_snapshot(A, run.snapshots[0]),
    turn(A, 7),
    snapshot,
    lambda run: run.store.trim(A, max_messages=6),
    turn(A, 8),
    lambda run: run.store.undo(A),
    lambda run: run.store.fork(A, COPY),
    turn(COPY, 0),
    lambda run: run.store.clear(A),
    turn(A, 9, size=20_000),
    lambda run: run.store.undo(A),
    lambda run: run.store.replace(A, [ChatMessage("user", "regenerated")], after=4),
    snapshot,
    lambda run: run.store.delete_snapshot(A, run.snapshots[1]),
    *(turn(B, number) for number in range(1, 5)),
    lambda run: run.store.trim(A, max_messages=2),
    lambda run: run.store.compact(A),
    migrate,
    *(turn(A, number, size=2000) for number in range(10, 14)),
    lambda run: run.store.rollback_to_snapshot(A, run.snapshots[2]),
    lambda run: run.store.rollback_to_snapshot(A, run.snapshots[0]),
    lambda run: run.store.undo(A),
    lambda run: run.store.set_ttl(B, 1_000_000),
    lambda run: run.store.erase(COPY),
    reopen,
    *(turn(B, number, size=3000) for number in range(5, 9)),
    lambda run: run.store.compact(),
    snapshot,
    turn(A, 14),
    lambda run: run.store.undo(A, expected_version=run.store.info(A).version),
    turn(A, 15),
    lambda run: run.store.clear(B),
    turn(B, 9),
    lambda run: run.close(),
]


@contextmanager
def as_next_version(folder: Path) -> Iterator[None]:
    """Be the next version of everturn: one more migration, which rewrites a table."""
    shutil.copytree(Path(schema.__file__).parent / "schema", folder / "schema", dirs_exist_ok=True)
    (folder / "schema" / f"{NEXT:03}.sql").write_text(
        "CREATE TABLE moods (session INTEGER PRIMARY KEY, mood TEXT NOT NULL) STRICT;\n"
        "INSERT INTO moods SELECT no, 'mellow' FROM sessions;\n"
        "ALTER TABLE entries ADD COLUMN mood TEXT;\n"
        "UPDATE entries SET mood = 'mellow';\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "CURRENT", NEXT)
        patch.setattr(schema, "files", lambda _: folder)
        patch.setattr(schema, "migrate", functools.partial(schema.migrate, current=NEXT))
        yield


def contents(store: MemoryStore) -> dict[str, Any]:
    """Read everything that can be compared of every session."""
    return {session.session_id: store.state(session.session_id) for session in store.sessions().sessions}


def version_of(path: Path) -> int:
    """The schema version of the file; 0 if it has none yet."""
    if not path.exists():
        return 0
    db = apsw.Connection(str(path))
    try:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema")]
        found: int = db.execute("SELECT max(version) FROM schema_versions").get if "schema_versions" in tables else 0
        return found
    finally:
        db.close()


@dataclass(frozen=True)
class Survivor:
    """The file after a power cut, and the acknowledgements that the run had by then."""

    acknowledged: int  # steps
    error: Exception | None  # of the step under way
    version: int
    contents: dict[str, Any]
    problems: tuple[Any, ...]


def cut_run(folder: Path, synchronous: str, sync: int, **how: Any) -> Survivor:
    """Run the script until the power goes at that sync, then look at what is left through an ordinary disk."""
    folder.mkdir()
    path = folder / "memory.db"
    acknowledged, error = 0, None
    with PowerLossVFS(f"cut {sync}") as disk:
        disk.cut_at(sync, **how)
        run = Run(path, disk, synchronous)
        try:
            for step in SCRIPT:
                step(run)
                acknowledged += 1
        except everturn.MemoryStoreError as exc:
            error = exc
        assert not disk.is_on, "the power never went"
        run.close()
    version = version_of(path)
    with as_next_version(folder), everturn.open(f"sqlite:///{path}?synchronous=OFF") as store:
        left = contents(store)
        problems = store.verify().problems
        store.save_context(A, "life", "goes on")
        assert store.get_history(A)[-1].text == "goes on"
    return Survivor(acknowledged, error, version, left, problems)


@dataclass(frozen=True)
class Undisturbed:
    """Contents of the store after each number of steps, and the number of syncs by then."""

    after: list[dict[str, Any]]
    syncs: list[int]


def undisturbed_run(folder: Path, synchronous: str) -> Undisturbed:
    after: list[dict[str, Any]] = [{}]
    syncs = [0]
    with PowerLossVFS(f"undisturbed {synchronous}") as disk:
        run = Run(folder / "memory.db", disk, synchronous)
        for step in SCRIPT:
            step(run)
            after.append(contents(run.store) if run.store else after[-1])
            syncs.append(disk.syncs)
    return Undisturbed(after, syncs)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return undisturbed_run(tmp_path_factory.mktemp("undisturbed"), "FULL")


MIGRATED = SCRIPT.index(migrate) + 1


def complaints(left: Survivor, undisturbed: Undisturbed) -> Iterator[str]:
    """Nothing acknowledged is lost; what was under way is there whole or not at all; and the error was honest."""
    done = left.acknowledged
    before, after = undisturbed.after[done], undisturbed.after[min(done + 1, len(SCRIPT))]
    if left.problems:
        yield f"step {done}: {left.problems}"
    if left.contents not in (before, after):
        yield f"step {done}: lost or torn"
    elif left.contents != before and getattr(left.error, "outcome", None) == "not_written":
        yield f"step {done}: there, and yet it was said: {left.error!r}"
    versions = {0: (0, NOW), MIGRATED - 1: (NOW, NEXT)}.get(done, (NOW,) if done < MIGRATED else (NEXT,))
    if left.version not in versions:
        yield f"step {done}: the schema has version {left.version}"


def test_every_change_has_a_sync(undisturbed: Undisturbed) -> None:
    """So a sweep over the syncs is a sweep over the changes; and there are more, which are checkpoints."""
    for number in range(len(SCRIPT)):
        if undisturbed.after[number + 1] != undisturbed.after[number]:
            assert undisturbed.syncs[number + 1] > undisturbed.syncs[number]
    assert undisturbed.syncs[-1] > len(SCRIPT) + 20, "hardly a checkpoint"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_cut_at_any_sync_loses_nothing_acknowledged(undisturbed: Undisturbed, tmp_path: Path, moment: Any) -> None:
    wrong: list[str] = []
    doubts = 0
    for sync in range(1, undisturbed.syncs[-1] + 1):
        left = cut_run(tmp_path / str(sync), "FULL", sync, moment=moment)
        wrong += complaints(left, undisturbed)
        doubts += isinstance(left.error, MemoryStoreBackendError) and left.error.outcome == "unknown"
    assert not wrong
    assert doubts > len(SCRIPT) / 2, "hardly a change was under way when the power went"


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_a_cut_that_tears_what_was_not_synced_loses_nothing_acknowledged(
    undisturbed: Undisturbed, tmp_path: Path, seed: int
) -> None:
    """The disk may have written any part of what it was not told to sync."""
    wrong: list[str] = []
    for sync in range(1 + seed, undisturbed.syncs[-1] + 1, 3):
        wrong += complaints(cut_run(tmp_path / str(sync), "FULL", sync, torn=1000 * seed + sync), undisturbed)
    assert not wrong


def test_the_same_sweep_shows_what_normal_loses(tmp_path: Path) -> None:
    """With synchronous=NORMAL acknowledged changes are lost: the sweep can fail. What is left is sound, but earlier."""
    runs = undisturbed_run(tmp_path, "NORMAL")
    losses = 0
    for sync in range(1, runs.syncs[-1] + 1):
        left = cut_run(tmp_path / str(sync), "NORMAL", sync)
        states = runs.after[: left.acknowledged + 2]
        assert left.problems == ()
        assert left.contents in states, "torn: no state that it ever was in"
        losses += left.contents not in states[-2:]
    assert losses > 5
