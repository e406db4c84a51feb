"""Rollback on a file with a past, from another process; at the end the whole file is compared."""

import pytest
from memory_manager import MemoryManager

pytestmark = pytest.mark.snapshot_db(mask=["messages.created_at", "snapshots.created_at"])


def save_snapshot(path, session, label):
    memory = MemoryManager(path)
    snapshot = memory.save_snapshot(session, label)
    memory.close()
    return snapshot


def rollback(path, session, snapshot):
    memory = MemoryManager(path)
    memory.rollback(session, snapshot)
    memory.close()


@pytest.mark.snapshot_db("memory_test")
def test_rollback_keeps_the_checkpoints(snapshot_db):
    snapshot_db.run(rollback, snapshot_db.path, "s1", "snap-1")


@pytest.mark.snapshot_db("memory_test")
def test_a_rollback_that_is_killed_changes_nothing(snapshot_db):
    snapshot_db.kill_during(rollback, snapshot_db.path, "s1", "snap-1", at=6)  # kill -9, just before its COMMIT


# A chain: the first saves, the second goes back, the third goes on. Each starts from what the one before should leave.


@pytest.mark.snapshot_db("memory_test")
def test_a_save(snapshot_db):
    assert snapshot_db.run(save_snapshot, snapshot_db.path, "s1", "late") == "snap-3"


@pytest.mark.snapshot_db(start=test_a_save)
def test_b_roll_back(snapshot_db):
    snapshot_db.run(rollback, snapshot_db.path, "s1", "snap-1")


@pytest.mark.snapshot_db(start=test_b_roll_back)
def test_c_go_on(snapshot_db):
    memory = MemoryManager(snapshot_db.path)
    memory.say("s1", "assistant", "Both are in Bern.")
    memory.close()
