"""Printing: text for people, JSON for scripts, and control characters escaped so that no text harms a terminal.

Knows no store.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import msgspec
from rich.color import ColorSystem
from rich.console import Console
from rich.text import Text

# Characters that move a cursor, change colours or the direction of writing: printed as escapes, never sent.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ANY_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Put the text on one line, control characters as escapes: others wrote it, and a terminal would obey it."""
    return _ANY_CONTROL.sub(_escaped, text)


def clean_lines(text: str) -> str:
    """The text with control characters as escapes; line ends and tabs stay."""
    return _CONTROL.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def console() -> Console:
    """The console for stdout. Without a terminal there are no colours, and no line is folded."""
    if sys.stdout.isatty():
        return Console(highlight=False, markup=False, emoji=False)
    return Console(highlight=False, markup=False, emoji=False, width=_width_without_terminal(), no_color=True)


def _width_without_terminal() -> int:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and int(columns) >= 20 else 10_000


def command() -> str:
    """The words of a shell that run this command again: `everturn` if the shell finds it, else its path, quoted."""
    script = Path(sys.argv[0])
    if script.stem != "everturn" or not script.exists():
        return f"{shlex.quote(sys.executable)} -m everturn"
    found = shutil.which("everturn")
    if found is not None and Path(found).resolve() == script.resolve():
        return "everturn"
    try:
        return shlex.quote(str(script.absolute().relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(script.absolute()))


def print_json(values: Iterable[Any]) -> None:
    """Print one JSON value per line, as they come."""
    out = sys.stdout
    for value in values:
        out.write(msgspec.json.encode(value).decode() + "\n")
    out.flush()


def print_paged(lines: Iterable[Text]) -> None:
    """Print the lines as they come, by way of `less` where they would not fit the terminal."""
    less = shutil.which("less")
    if not sys.stdout.isatty() or less is None:
        _write(lines, sys.stdout, colours=sys.stdout.isatty())
        return
    # -F: less steps aside if all fits. -R: colours. -X: leave the text on the screen.
    pager = subprocess.Popen([less, "-FRX"], stdin=subprocess.PIPE, text=True)  # noqa: S603 - the user's own pager
    if pager.stdin is None:  # pragma: no cover - it was asked for
        return
    try:
        _write(lines, pager.stdin, colours=True)
        pager.stdin.close()
    except BrokenPipeError:
        pass  # the reader has seen enough
    pager.wait()


def _write(lines: Iterable[Text], out: IO[str], *, colours: bool) -> None:
    """Write lines that are folded already. Console.print would measure each of them again: 20 s for 100,000."""
    if not colours:
        out.writelines(line.plain + "\n" for line in lines)
        out.flush()
        return
    painter = Console(file=out, force_terminal=True, highlight=False)
    depth = {"truecolor": ColorSystem.TRUECOLOR, "256": ColorSystem.EIGHT_BIT, "standard": ColorSystem.STANDARD}.get(
        painter.color_system or ""
    )
    for line in lines:
        out.writelines(
            style.render(text, color_system=depth) if style else text for text, style, _ in line.render(painter)
        )
        out.write("\n")
    out.flush()
