"""Names of artifacts: one file for each test, database and stage, safe on every file system.

Pure: it touches no file.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path

from everturn.testing.golden.errors import GoldenError

FOLDER = "snapshots"
SUFFIX = ".sqlite"

# Only characters that every file system takes, and that have no meaning for shells and globs.
_OTHERS = re.compile(r"[^A-Za-z0-9_.,=-]+")
_GIVEN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,=+@-]*")
_LONGEST = 80
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}


def artifact(folder: Path, *, test: str, database: str = "", stage: str = "") -> Path:
    """Name the file for a test (as pytest names it: `TestA::test_b[1-x]`), a database of it, and a stage."""
    name, bracket, parameters = test.partition("[")
    stem = portable(name.replace("::", "."))
    if bracket:
        stem += "-" + portable(parameters.removesuffix("]"))
    if database:
        stem += "+" + database
    if stage:
        stem += "@" + portable(stage.replace(" ", "-"))
    return folder / f"{stem}{SUFFIX}"


def module_folder(test_file: Path) -> Path:
    """Name the folder of a test module's artifacts."""
    return test_file.parent / FOLDER / portable(test_file.stem)


def portable(text: str) -> str:
    """Make a part of a file name: the text itself if it is safe everywhere, else its safe characters and a digest."""
    name = _OTHERS.sub("-", text)
    if name == text and name and len(name) <= _LONGEST and not _is_device(name):
        return name
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{'_' if _is_device(name) else ''}{name[:_LONGEST].strip('-')}-{digest}".strip("-")


def given(name: str) -> str:
    """Check a name that a user chose. Raises GoldenError unless it is the same on every file system."""
    if _GIVEN.fullmatch(name) and len(name) <= _LONGEST and not _is_device(name) and not name.endswith("."):
        return name
    raise GoldenError(
        f"{name!r} is not a portable name for an artifact: not every file system can hold it. "
        f"Use letters, digits, '_', '-' and '.', at most {_LONGEST}, and no device name such as 'nul'"
    )


def given_path(name: str) -> Path:
    """Check the path of a file below the snapshots folder, with or without suffix, with '/' between folders."""
    parts = [given(part) for part in name.removesuffix(SUFFIX).split("/")]
    return Path(*parts[:-1], parts[-1] + SUFFIX)


def _is_device(name: str) -> bool:
    return name.partition(".")[0].casefold() in _DEVICES


def same_file_key(path: Path) -> str:
    """Make a key that is equal for two paths that are one file on some file system."""
    return str(path).casefold()
