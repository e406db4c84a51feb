"""The disks that fail on purpose, proved with bare apsw: they lose what was not synced, and only that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import apsw
import pytest

from everturn.testing.faults.disks import PowerLossVFS, SlowSyncVFS

ROWS = 8
ALL_ROWS = list(range(1, ROWS + 1))

WAL_FULL = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=5"
WAL_NORMAL = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=5"
TRUNCATE_FULL = "PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=FULL"
DELETE_EXTRA = "PRAGMA journal_mode=DELETE; PRAGMA synchronous=EXTRA"
DELETE_FULL = "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL"
DELETE_OFF = "PRAGMA journal_mode=DELETE; PRAGMA synchronous=OFF"
durable_settings = pytest.mark.parametrize(
    "settings", [WAL_FULL, TRUNCATE_FULL, DELETE_EXTRA], ids=["wal-full", "truncate-full", "delete-extra"]
)


@dataclass(frozen=True)
class Outcome:
    """Rows that a run was told are committed, and rows in its file afterwards (None if the file is corrupt)."""

    acknowledged: list[int]
    kept: list[int] | None

    @property
    def lost(self) -> list[int]:
        return [row for row in self.acknowledged if row not in (self.kept or [])]


def connect(disk: PowerLossVFS | SlowSyncVFS, path: Path, sql: str) -> apsw.Connection:
    connection = apsw.Connection(str(path), vfs=disk.name)
    connection.execute(sql).fetchall()
    return connection


def run(disk: PowerLossVFS, path: Path, settings: str) -> list[int]:
    """Commit the rows one by one, each with a change of the total, until the end or a cut."""
    acknowledged = []
    with suppress(apsw.IOError):
        connection = apsw.Connection(str(path), vfs=disk.name)
        with suppress(apsw.IOError):
            connection.execute(settings).fetchall()
            connection.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, body)")
            connection.execute("CREATE TABLE total(n); INSERT INTO total VALUES(0)")
            for row in ALL_ROWS:
                with connection:
                    connection.execute("INSERT INTO rows VALUES(?, randomblob(3000))", (row,))
                    connection.execute("UPDATE total SET n = n + 1")
                acknowledged.append(row)
        connection.close()
    return acknowledged


def read(path: Path) -> list[int] | None:
    """The rows in the file, as the ordinary VFS finds them, or None if it is corrupt."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous=OFF")  # for speed: the real disk keeps its power
    try:
        if connection.execute("PRAGMA integrity_check").get != "ok":
            return None
        if connection.execute("SELECT count(*) FROM sqlite_schema").get < 2:
            return []
        rows = [row for (row,) in connection.execute("SELECT id FROM rows ORDER BY id")]
        return rows if (connection.execute("SELECT n FROM total").get or 0) == len(rows) else None
    except (apsw.CorruptError, apsw.NotADBError):
        return None
    finally:
        connection.close()


def sweep(
    folder: Path, settings: str, *, moment: Literal["before", "after"] = "before", torn: int | None = None
) -> Iterator[Outcome]:
    """The outcome of the same run for a cut at each of its sync points."""
    with PowerLossVFS("whole") as disk:
        assert run(disk, folder / "whole.db", settings) == ALL_ROWS
    assert disk.syncs > 0
    for sync in range(1, disk.syncs + 1):
        path = folder / f"{sync}.db"
        with PowerLossVFS("swept") as swept:
            swept.cut_at(sync, moment=moment, torn=None if torn is None else torn + sync)
            acknowledged = run(swept, path, settings)
            assert not swept.is_on
        yield Outcome(acknowledged, read(path))


@durable_settings
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_synced_database_keeps_every_acknowledged_row_at_every_cut(
    tmp_path: Path, settings: str, moment: Literal["before", "after"]
) -> None:
    for outcome in sweep(tmp_path, settings, moment=moment):
        assert outcome.kept is not None
        assert outcome.lost == []
        assert len(outcome.kept) <= len(outcome.acknowledged) + 1


@durable_settings
@pytest.mark.parametrize("seed", [1000, 2000])
def test_torn_sectors_never_break_a_synced_database(tmp_path: Path, settings: str, seed: int) -> None:
    for outcome in sweep(tmp_path, settings, torn=seed):
        assert outcome.kept is not None
        assert outcome.lost == []


def test_wal_normal_loses_acknowledged_rows_and_stays_sound(tmp_path: Path) -> None:
    outcomes = list(sweep(tmp_path, WAL_NORMAL))
    assert any(outcome.lost for outcome in outcomes)
    assert all(outcome.kept is not None for outcome in outcomes)


def test_a_deleted_journal_comes_back_unless_its_directory_was_synced(tmp_path: Path) -> None:
    outcomes = list(sweep(tmp_path, DELETE_FULL))
    assert {len(outcome.lost) for outcome in outcomes} == {0, 1}
    assert all(outcome.kept is not None for outcome in outcomes)


def test_torn_sectors_break_a_database_that_does_not_sync(tmp_path: Path) -> None:
    kept = []
    for seed in range(8):
        with PowerLossVFS("unsynced") as disk:
            run(disk, tmp_path / f"{seed}.db", DELETE_OFF)
            disk.cut(torn=seed)
        kept.append(read(tmp_path / f"{seed}.db"))
    assert None in kept


def test_a_seed_tears_the_same_sectors_every_time(tmp_path: Path) -> None:
    def survivor(seed: int) -> bytes:
        path = tmp_path / "a.db"
        path.unlink(missing_ok=True)
        with PowerLossVFS("torn") as disk:
            connection = connect(disk, path, DELETE_OFF + "; CREATE TABLE t(x)")
            connection.execute("INSERT INTO t VALUES(replace(hex(zeroblob(20000)), '0', 'x'))")
            disk.cut(torn=seed)
        return path.read_bytes() if path.exists() else b""

    survivors = [survivor(seed) for seed in range(8)]
    assert survivors == [survivor(seed) for seed in range(8)]
    assert len(set(survivors)) > 4


def test_unsynced_writes_are_seen_by_other_connections_and_dropped_by_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with PowerLossVFS("shared") as disk:
        writer = connect(disk, path, WAL_NORMAL + "; CREATE TABLE t(x); PRAGMA wal_checkpoint")
        reader = connect(disk, path, "SELECT x FROM t")
        writer.execute("INSERT INTO t VALUES(1)")
        assert reader.execute("SELECT count(*) FROM t").get == 1
        disk.cut()
    assert apsw.Connection(str(path)).execute("SELECT count(*) FROM t").get == 0


@pytest.mark.parametrize(("moment", "kept"), [("before", 0), ("after", 1)])
def test_a_cut_after_the_sync_keeps_a_change_that_was_never_acknowledged(
    tmp_path: Path, moment: Literal["before", "after"], kept: int
) -> None:
    path = tmp_path / "a.db"
    with PowerLossVFS("moment") as disk:
        connection = connect(disk, path, WAL_FULL + "; CREATE TABLE t(x)")
        disk.cut_at(disk.syncs + 1, moment=moment)
        with pytest.raises(apsw.IOError):
            connection.execute("INSERT INTO t VALUES(1)")
    assert apsw.Connection(str(path)).execute("SELECT count(*) FROM t").get == kept


def test_the_shared_memory_is_gone_after_the_cut(tmp_path: Path) -> None:
    with PowerLossVFS("shm") as disk:
        connection = connect(disk, tmp_path / "a.db", WAL_FULL + "; CREATE TABLE t(x)")
        disk.cut()
        assert {path.name for path in tmp_path.iterdir()} == {"a.db", "a.db-wal"}
        connection.close()


def test_a_synced_file_keeps_its_name_without_a_directory_sync(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with PowerLossVFS("name") as disk:
        connect(disk, path, "PRAGMA journal_mode=MEMORY; CREATE TABLE t(x)")
        disk.cut()
    assert apsw.Connection(str(path)).execute("SELECT name FROM sqlite_schema").get == "t"


def test_a_file_that_was_never_synced_is_gone_after_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with PowerLossVFS("gone") as disk:
        connection = connect(disk, path, DELETE_OFF + "; CREATE TABLE t(x)")
        assert path.exists()
        disk.cut()
        connection.close()
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_before_the_disk_was_opened_survives(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    apsw.Connection(str(path)).execute("CREATE TABLE t(x); INSERT INTO t VALUES(1)")
    with PowerLossVFS("old") as disk:
        connect(disk, path, "PRAGMA synchronous=OFF; UPDATE t SET x = 2")
        disk.cut()
    assert apsw.Connection(str(path)).execute("SELECT x FROM t").get == 1


def test_all_io_fails_from_the_cut_on(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with PowerLossVFS("off") as disk:
        connection = connect(disk, path, WAL_FULL + "; CREATE TABLE t(x)")
        disk.cut_at(disk.syncs + 1)
        with pytest.raises(apsw.IOError, match="the power is off") as failure:
            connection.execute("INSERT INTO t VALUES(1)")
        assert getattr(failure.value, "extendedresult", None) == apsw.SQLITE_IOERR_FSYNC
        for attempt in (
            lambda: connection.execute("INSERT INTO t VALUES(2)"),
            lambda: connection.execute("SELECT * FROM t").fetchall(),
            lambda: connect(disk, path, "SELECT * FROM t"),
        ):
            with pytest.raises(apsw.IOError, match="the power is off"):
                attempt()


def test_a_reader_cannot_become_a_writer_after_the_cut(tmp_path: Path) -> None:
    with PowerLossVFS("reader") as disk:
        connect(disk, tmp_path / "a.db", TRUNCATE_FULL + "; CREATE TABLE t(x)")
        reader = connect(disk, tmp_path / "a.db", "BEGIN; SELECT * FROM t")
        disk.cut()
        with pytest.raises(apsw.IOError, match="the power is off"):
            reader.execute("INSERT INTO t VALUES(1)")


@durable_settings
def test_connections_from_before_the_cut_stay_dead_and_harm_nothing(tmp_path: Path, settings: str) -> None:
    path = tmp_path / "a.db"
    with PowerLossVFS("again") as disk:
        writing = connect(disk, path, settings + "; CREATE TABLE t(x)")
        idle = connect(disk, path, settings + "; SELECT * FROM t")
        writing.execute("BEGIN; INSERT INTO t VALUES(randomblob(9000))")
        disk.cut()
        disk.power_on()
        alive = connect(disk, path, settings + "; INSERT INTO t VALUES(1)")
        for dead in (writing, idle):
            with pytest.raises(apsw.IOError):
                dead.execute("INSERT INTO t VALUES(2); COMMIT")
            dead.close()
        alive.execute("INSERT INTO t VALUES(3)")
        assert connect(disk, path, "").execute("SELECT group_concat(x) FROM t").get == "1,3"


@durable_settings
def test_recovery_may_be_cut_at_each_of_its_own_syncs(tmp_path: Path, settings: str) -> None:
    second_cuts = 0
    for first in range(20, 26):
        for second in range(first + 1, first + 100):
            path = tmp_path / f"{first}-{second}.db"
            with PowerLossVFS("twice") as disk:
                disk.cut_at(first, torn=second)
                acknowledged = run(disk, path, settings)
                disk.power_on()
                disk.cut_at(second, torn=second)
                with suppress(apsw.IOError):
                    connect(disk, path, "SELECT * FROM rows; PRAGMA wal_checkpoint(TRUNCATE)").close()
                has_recovered = disk.is_on
            outcome = Outcome(acknowledged, read(path))
            assert outcome.kept is not None
            assert outcome.lost == []
            if has_recovered:
                break
            second_cuts += 1
    assert second_cuts > 0


def test_a_run_without_a_cut_leaves_an_ordinary_file(tmp_path: Path) -> None:
    with PowerLossVFS("calm") as disk:
        run(disk, tmp_path / "a.db", WAL_FULL)
    assert read(tmp_path / "a.db") == ALL_ROWS


def test_a_sync_that_has_passed_cannot_be_cut(tmp_path: Path) -> None:
    with PowerLossVFS("late") as disk:
        run(disk, tmp_path / "a.db", WAL_FULL)
        with pytest.raises(ValueError, match="has passed; the next one is"):
            disk.cut_at(disk.syncs)


both_disks = pytest.mark.parametrize("make", [PowerLossVFS, SlowSyncVFS])


@both_disks
def test_a_disk_is_registered_until_the_end_of_its_block(
    make: Callable[[str], PowerLossVFS | SlowSyncVFS],
) -> None:
    with make("scoped") as disk:
        assert disk.name in apsw.vfs_names()
    assert disk.name not in apsw.vfs_names()


@both_disks
def test_waiting_for_a_lock_lets_the_other_thread_release_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], PowerLossVFS | SlowSyncVFS]
) -> None:
    with make("contended") as disk:
        holder = connect(disk, tmp_path / "a.db", "PRAGMA journal_mode=WAL; CREATE TABLE t(x)")
        waiter = connect(disk, tmp_path / "a.db", "SELECT * FROM t")
        waiter.set_busy_timeout(10_000)
        holder.execute("PRAGMA synchronous=OFF; BEGIN IMMEDIATE")
        monkeypatch.setattr("everturn.testing.faults.disks.time.sleep", lambda _: holder.execute("COMMIT"))
        waiter.execute("PRAGMA synchronous=OFF; INSERT INTO t VALUES(1)")
        monkeypatch.undo()


def test_the_slow_disk_counts_the_sync_of_every_commit(tmp_path: Path) -> None:
    with SlowSyncVFS("slow", seconds=0) as disk:
        connection = connect(disk, tmp_path / "a.db", "PRAGMA journal_mode=WAL; CREATE TABLE t(x)")
        before = disk.syncs
        for row in ALL_ROWS:
            connection.execute("INSERT INTO t VALUES(?)", (row,))
        assert disk.syncs == before + ROWS
        connection.execute("PRAGMA synchronous=NORMAL; INSERT INTO t VALUES(0)")
        assert disk.syncs == before + ROWS


def test_other_threads_work_while_the_slow_disk_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncing, worked = threading.Event(), threading.Event()
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        syncing.set()
        assert worked.wait(timeout=10)

    monkeypatch.setattr("everturn.testing.faults.disks.time.sleep", sleep)

    def work() -> None:
        assert syncing.wait(timeout=10)
        worked.set()

    other = threading.Thread(target=work)
    other.start()
    with SlowSyncVFS("patient", seconds=0.25) as disk:
        connect(disk, tmp_path / "a.db", "CREATE TABLE t(x)")
    other.join()
    assert set(waits) == {0.25}
