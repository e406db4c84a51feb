"""Jobs on database files, in a process that does nothing else. inspector.py is its other end.

SQLite opens only copies of files here. No file is changed but artifacts.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from everturn.testing.golden import artifacts, file_copy, read_database
from everturn.testing.golden.compare import DatabaseDifference, compare
from everturn.testing.golden.database_image import DatabaseImage
from everturn.testing.golden.errors import GoldenError
from everturn.testing.golden.masks import Mask
from everturn.testing.golden.render import render

_ROWS = 10  # of a kind and table, in a test's report


@dataclass(frozen=True)
class WrittenArtifact:
    """An artifact after an update: whether it was written, and its size."""

    is_written: bool
    size: int


def provide(start: Path, target: Path) -> None:
    """Give a test its own copy of an artifact. Raises GoldenError if this SQLite cannot read it."""
    _sound(start)
    file_copy.copy(start, target)


def judge(expected: Path, actual: Path, masks: tuple[Mask, ...], *, foreign_keys: bool) -> str:
    """Compare a file with its artifact. Returns a text with the differences; "" if nothing is."""
    before, after = _sound(expected), read_database.read(actual)
    difference = compare(before, after, masks)
    return "\n".join((*_difference(difference), *_faults(after, difference, foreign_keys=foreign_keys)))


def take(actual: Path, draft: Path, *, foreign_keys: bool) -> None:
    """Pack the content of a file into a draft of an artifact. Raises GoldenError if the file has a problem."""
    artifacts.pack(actual, draft)
    if foreign_keys:
        dangling = read_database.read(draft).dangling
        if dangling:
            draft.unlink()
            raise GoldenError("\n".join(_dangling(dangling)))


def write_artifact(draft: Path, artifact: Path, masks: tuple[Mask, ...]) -> WrittenArtifact:
    """Replace the artifact by the draft, unless both hold the same: then not a byte changes."""
    after = read_database.read(draft)
    before = _existing(artifact)
    difference = compare(after if before is None else before, after, masks)
    if difference.idle:
        raise GoldenError("\n".join(_idle(difference.idle)))
    if before is None or not difference.is_none:
        artifacts.install(draft, artifact)
        return WrittenArtifact(is_written=True, size=artifact.stat().st_size)
    return WrittenArtifact(is_written=False, size=artifact.stat().st_size)


def _sound(artifact: Path) -> DatabaseImage:
    image = read_database.read(artifact)
    if image.problems:
        raise GoldenError(f"{artifact} is damaged, integrity_check finds: {'; '.join(image.problems)}")
    return image


def _existing(artifact: Path) -> DatabaseImage | None:
    """Read the artifact; None if there is none. Raises GoldenError for an unreadable file: it is not replaced."""
    if not artifact.exists():
        return None
    try:
        return _sound(artifact)
    except GoldenError as exc:
        raise GoldenError(f"{exc}\nIt was not replaced. To have it written anew, take it away first") from exc


def _difference(difference: DatabaseDifference) -> Iterable[str]:
    return () if difference.is_none else render(difference, limit=_ROWS)


def _faults(image: DatabaseImage, difference: DatabaseDifference, *, foreign_keys: bool) -> Iterable[str]:
    if image.problems:
        yield "\nintegrity_check finds:"
        yield from (f"  {problem}" for problem in image.problems)
    if foreign_keys and image.dangling:
        yield ""
        yield from _dangling(image.dangling)
    if difference.idle:
        yield ""
        yield from _idle(difference.idle)


def _dangling(dangling: tuple[str, ...]) -> Iterable[str]:
    yield "foreign_key_check finds (foreign_keys=False in the mark lets it be):"
    yield from (f"  {each}" for each in dangling[:_ROWS])
    if len(dangling) > _ROWS:
        yield f"  ... and {len(dangling) - _ROWS:,} more"


def _idle(idle: tuple[str, ...]) -> Iterable[str]:
    yield "a mask has nothing to mask (take it away, mend it, or say missing_ok=True):"
    yield from (f"  {each}" for each in idle)


# --- the process -----------------------------------------------------------------------------------------------------

JOBS: dict[str, Callable[..., Any]] = {job.__name__: job for job in (provide, judge, take, write_artifact)}


def serve() -> None:
    """Run jobs from stdin one by one, until stdin ends."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints must not get between the replies
    while True:
        try:
            name, args, kwargs = pickle.load(requests)  # noqa: S301 - from the process that started this one
        except EOFError:
            return
        _reply(replies, JOBS[name], args, kwargs)


def _reply(replies: BinaryIO, job: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        reply = ("done", job(*args, **kwargs))
    except GoldenError as exc:
        reply = ("refused", str(exc))
    except Exception:  # noqa: BLE001 - the other end shows it, and this one goes on
        reply = ("broken", traceback.format_exc())
    pickle.dump(reply, replies)
    replies.flush()
