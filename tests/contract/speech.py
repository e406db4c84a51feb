"""Short ways to say things in tests: messages, their words, and a process of one's own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

from everturn import ChatMessage


def user(text: str, **fields: Any) -> ChatMessage:
    return ChatMessage("user", text, **fields)


def assistant(text: str | None, **fields: Any) -> ChatMessage:
    return ChatMessage("assistant", text, **fields)


def system(text: str) -> ChatMessage:
    return ChatMessage("system", text)


def calling(*call_ids: str) -> ChatMessage:
    """An assistant's message that makes tool calls."""
    calls = [{"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for call_id in call_ids]
    return ChatMessage("assistant", None, tool_calls=calls)


def result(call_id: str, text: str = "done") -> ChatMessage:
    return ChatMessage("tool", text, tool_call_id=call_id)


def say(store: Any, session_id: str, *texts: str, **options: Any) -> Any:
    """One turn of user messages."""
    return store.add_messages(session_id, [user(text) for text in texts], **options)


def say_each(store: Any, session_id: str, *texts: str) -> list[Any]:
    """A turn for each text."""
    return [say(store, session_id, text) for text in texts]


def words(store: Any, session_id: str, **options: Any) -> list[Any]:
    """The contents of the history."""
    return [message.content for message in store.get_history(session_id, **options)]


def in_another_process(script: str, *args: object) -> str:
    """Run a script in a Python of its own; its arguments are in `argv`. Returns what it printed."""
    prelude = "import sys\nargv = sys.argv[1:]\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(script), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Backdoor:
    """Another process with bare apsw: it opens a file, runs one statement, and closes it again."""

    SCRIPT = """
import json, sys, apsw
for line in sys.stdin:
    path, statement = json.loads(line)
    db = apsw.Connection(path)
    db.set_busy_timeout(5000)
    rows = db.execute(statement).fetchall()
    db.close()
    print(json.dumps("\\n".join("|".join(map(str, row)) for row in rows)), flush=True)
"""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def sql(self, path: object, statement: str) -> str:
        """Run the statement; returns the rows, one a line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(path), statement]) + "\n")
        self._process.stdin.flush()
        rows: str = json.loads(self._process.stdout.readline())
        return rows

    def close(self) -> None:
        self._process.communicate(timeout=30)
