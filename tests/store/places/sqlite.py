"""SQLite as a place: a file behind both faces, and in memory. Its editor is another process with bare apsw, and page
checksums: what is written by it differs from everturn's own in nothing but what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from zlib import adler32

from tests.store.places.place import Place, Stored

_LOOK = """
import json, sys
from pathlib import Path
from everturn.backends.sqlite import page_checksums as pages
from tests.row_seals import seal

def look(path, statement, values):
    db = pages.connect(path)
    db.set_busy_timeout(5000)
    rows = db.execute(statement, values).fetchall()
    if statement.startswith("UPDATE ") or "INTO jumps" in statement:
        seal(db)
    db.close()
    return [[value.hex() if isinstance(value, bytes) else value for value in row] for row in rows]

def count(path, markers):
    files = [Path(path + suffix) for suffix in ("", "-wal", "-shm", "-journal")]
    stored = b"".join(file.read_bytes() for file in files if file.exists())
    return [stored.count(marker.encode()) for marker in markers]

for line in sys.stdin:
    what, *args = json.loads(line)
    print(json.dumps({"look": look, "count": count}[what](*args)), flush=True)
"""
_READ = """
import sys
from everturn.backends.sqlite import page_checksums as pages
db = pages.connect(sys.argv[1])
db.execute("BEGIN")
db.execute("SELECT count(*) FROM entries").fetchall()
print("reading", flush=True)
for line in sys.stdin:
    print(db.execute("SELECT count(*) FROM entries WHERE instr(body, ?)", (line.strip(),)).get, flush=True)
db.close()
"""


class Beside:
    """Another process with bare apsw: it opens a file, looks or runs one statement, and closes it again."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOOK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _ask(self, *words: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def sql(self, path: object, statement: str, *values: Any) -> Any:
        """Run the statement; returns the rows, with blobs as hex digits."""
        return self._ask("look", str(path), statement, values)

    def count(self, path: object, markers: tuple[str, ...]) -> list[int]:
        """How often each marker stands in the bytes of the file and of those beside it."""
        found: list[int] = self._ask("count", str(path), markers)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)


_IT = "namespace = '' AND session_id = ?1 AND ended = 0"


class FileEditor:
    """See docs/storage.md."""

    def __init__(self, path: Path, beside: Beside) -> None:
        self._path = path
        self._beside = beside

    def _sql(self, statement: str, *values: Any) -> Any:
        statement = statement.replace(":base", f"(SELECT no << 32 FROM sessions WHERE {_IT})")
        return self._beside.sql(self._path, statement, *values)

    def _apart(self, session_id: str, seq: int) -> None:
        """Give every entry that shares a row with this one a row of its own."""
        columns = "seq, CAST(body AS BLOB), turn, kind, created_at"
        across = "seq <= ?2 AND seq + count > ?2 AND count > 1 AND session = :base >> 32"
        for first, body, *facts in self._sql(f"SELECT {columns} FROM entries WHERE {across}", session_id, seq):
            for number, line in enumerate(bytes.fromhex(body).split(b"\n")):  # damaged in nothing yet
                self._put(session_id, first + number, line, adler32(line), *facts)

    def _put(self, session_id: str, seq: int, body: bytes, checksum: int, *facts: Any) -> None:
        text = f"CAST(x'{body.hex()}' AS TEXT)"
        self._sql(
            "INSERT OR REPLACE INTO entries (id, turn, kind, created_at, checksum, body)"
            f" VALUES (:base + ?2, ?3, ?4, ?5, 0, {text})",
            *(session_id, seq, *facts),
        )
        self._sql(
            "UPDATE entries SET checksum = ((?3 + 2147483648 - body_checksum) & 4294967295) - 2147483648"
            " WHERE id = :base + ?2",
            *(session_id, seq, checksum),
        )

    def entry(self, session_id: str, seq: int) -> Stored:
        self._apart(session_id, seq)
        columns = "kind, CAST(body AS BLOB), body_checksum, turn, created_at"
        ((kind, body, *rest),) = self._sql(f"SELECT {columns} FROM entries WHERE id = :base + ?2", session_id, seq)
        return Stored(kind, bytes.fromhex(body), *rest)

    def put_entry(self, session_id: str, seq: int, entry: Stored) -> None:
        self._apart(session_id, seq)
        self._put(session_id, seq, entry.body, entry.checksum, entry.turn, entry.kind, entry.created_at)

    def drop_entry(self, session_id: str, seq: int) -> None:
        self._apart(session_id, seq)
        self._sql("DELETE FROM entries WHERE id = :base + ?2", session_id, seq)

    def drop_log(self, session_id: str) -> None:
        self._sql("DELETE FROM entries WHERE id >> 32 = :base >> 32", session_id)

    def drop_session(self, session_id: str) -> None:
        self._sql(f"DELETE FROM sessions WHERE {_IT}", session_id)

    def drop_change(self, session_id: str, version: int) -> None:
        self._sql("DELETE FROM changes WHERE id = :base + ?2", session_id, version)

    def set_state(self, session_id: str, **fields: int) -> None:
        columns = ", ".join(f"{name} = {value:d}" for name, value in fields.items())
        self._sql(f"UPDATE sessions SET {columns} WHERE {_IT}", session_id)

    def add_jump(self, session_id: str, seq: int, after: int) -> None:
        self._sql("INSERT OR REPLACE INTO jumps (id, after) VALUES (:base + ?2, ?3)", session_id, seq, after)

    def move_snapshots(self, session_id: str, head: int) -> None:
        self._sql("UPDATE snapshots SET head = ?2 WHERE session = :base >> 32", session_id, head)

    def move_undo_steps(self, session_id: str, head: int) -> None:
        self._sql("UPDATE undo_steps SET head = ?2 WHERE session = :base >> 32", session_id, head)

    def entries(self) -> int:
        # Session 0 has the rows that end the indexes.
        ((count,),) = self._sql("SELECT ifnull(sum(count), 0) FROM entries WHERE id >> 32 > 0")
        return int(count)

    def remnants(self, *markers: str) -> dict[str, int]:
        """In the bytes of the files, free pages and all."""
        counts = zip(markers, self._beside.count(self._path, markers), strict=True)
        return {marker: count for marker, count in counts if count}

    def size(self) -> int:
        self._sql("PRAGMA wal_checkpoint(TRUNCATE)")
        return self._path.stat().st_size

    @contextmanager
    def reader(self) -> Iterator[Callable[[str], bool]]:
        with subprocess.Popen(
            [sys.executable, "-c", _READ, str(self._path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            asked, said = process.stdin, process.stdout
            assert asked is not None
            assert said is not None
            assert said.readline() == "reading\n"

            def sees(text: str) -> bool:
                asked.write(f"{text}\n")
                asked.flush()
                return said.readline() != "0\n"

            try:
                yield sees
            finally:
                asked.close()
                assert process.wait(timeout=30) == 0


class Memory(Place):
    reopens = shared = False
    url = "sqlite://"


class File(Place):
    """What is promised here does not hang on the disk's syncs; crash tests judge those. So these stores spare them."""

    def open(self, **options: Any) -> Any:
        return super().open(**{"synchronous": "OFF"} | options)

    @property
    def path(self) -> Path:
        return self.folder / "memory.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def editor(self) -> FileEditor:
        return FileEditor(self.path, self.servers.beside_sqlite)


class AsyncFile(File):
    blocking = False
    examples = 15
