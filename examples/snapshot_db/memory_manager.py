"""The memory of a chat bot, in SQLite: what was said, and snapshots to go back to."""

import sqlite3
import time

TABLES = """
    CREATE TABLE IF NOT EXISTS messages (
        id INTEGER PRIMARY KEY, session TEXT NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL, created_at REAL NOT NULL
    );
    CREATE TABLE IF NOT EXISTS snapshots (
        id TEXT PRIMARY KEY, session TEXT NOT NULL, label TEXT, last_message INTEGER NOT NULL, created_at REAL NOT NULL
    );
"""


class MemoryManager:
    """One connection to one file."""

    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.executescript(TABLES)

    def close(self):
        self.db.close()

    def say(self, session, role, text):
        with self.db:
            self.db.execute(
                "INSERT INTO messages (session, role, text, created_at) VALUES (?, ?, ?, ?)",
                (session, role, text, time.time()),
            )

    def history(self, session):
        rows = self.db.execute("SELECT role, text FROM messages WHERE session = ? ORDER BY id", (session,))
        return rows.fetchall()

    def save_snapshot(self, session, label=None):
        with self.db:
            (count,) = self.db.execute("SELECT count(*) FROM snapshots").fetchone()
            (last,) = self.db.execute("SELECT max(id) FROM messages WHERE session = ?", (session,)).fetchone()
            snapshot = f"snap-{count + 1}"
            self.db.execute(
                "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", (snapshot, session, label, last or 0, time.time())
            )
        return snapshot

    def rollback(self, session, snapshot):
        """Forget what was said after the snapshot."""
        with self.db:
            query = "SELECT last_message FROM snapshots WHERE id = ? AND session = ?"
            (last,) = self.db.execute(query, (snapshot, session)).fetchone()
            self.db.execute("DELETE FROM messages WHERE session = ? AND id > ?", (session, last))
