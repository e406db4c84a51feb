"""The test that everybody writes: a fresh database, in memory, in one process, asked for what it was just told."""

from memory_manager import MemoryManager


def test_rollback():
    memory = MemoryManager(":memory:")
    memory.say("s1", "user", "My order is 1234.")
    snapshot = memory.save_snapshot("s1")
    memory.say("s1", "assistant", "What is your order number?")
    memory.rollback("s1", snapshot)
    assert memory.history("s1") == [("user", "My order is 1234.")]
