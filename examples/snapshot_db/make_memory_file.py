"""Makes tests/snapshots/memory_test.sqlite, the file that the tests start from: a conversation with two snapshots."""

from pathlib import Path

from memory_manager import MemoryManager


def main():
    path = Path(__file__).parent / "tests" / "snapshots" / "memory_test.sqlite"
    path.unlink(missing_ok=True)
    memory = MemoryManager(path)
    memory.say("s1", "user", "My order is 1234.")
    memory.say("s1", "assistant", "Thanks! I see two parcels.")
    memory.save_snapshot("s1", "before the new prompt")
    memory.say("s1", "user", "Where are they?")
    memory.say("s1", "assistant", "What is your order number?")
    memory.save_snapshot("s1", "it forgot")
    memory.say("s1", "user", "I told you.")
    memory.say("s2", "user", "Hello?")
    memory.close()


if __name__ == "__main__":  # pytest may import it
    main()
