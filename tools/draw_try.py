"""Draws docs/images/try.svg, the picture in the README: a real run of `make try`, as its terminal shows it at the end.

    python tools/draw_try.py

It runs the demo in a terminal of its own, and reads what arrives there. The picture loads nothing: rich's web fonts are
taken out.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/images/try.svg"
KEEP = "build/try"
COLUMNS, ROWS = 96, 60
FONTS = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)
# What rich sends besides text and colours: up so many lines, clear the line, show or hide the cursor.
CODE = re.compile(r"\x1b\[(\d*)A|\x1b\[2K|\x1b\[\?25[lh]|\r|\n|[^\x1b\r\n]+|\x1b\[[\d;]*m")


def run() -> str:
    """Run `everturn demo` in a terminal, and return everything that it sent there."""
    shutil.rmtree(ROOT / KEEP, ignore_errors=True)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": ""}
    environment.pop("NO_COLOR", None)
    command = [Path(sys.executable).with_name("everturn"), "demo", "--seed", "7", "--keep", KEEP]
    sent = b""
    with subprocess.Popen(command, cwd=ROOT, stdout=theirs, stderr=theirs, env=environment) as process:  # noqa: S603
        os.close(theirs)
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says so when the other side has ended
                part = b""
            if not part:
                break
            sent += part
    os.close(ours)
    if process.returncode:
        sys.exit(sent.decode())
    return sent.decode()


def screen(sent: str) -> list[str]:
    """Return the lines that the terminal shows at the end, colours included."""
    lines, row = [""], 0
    for found in CODE.finditer(sent):
        code = found[0]
        if code == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif code.endswith("A") and code.startswith("\x1b"):
            row -= int(found[1] or 1)
        elif code == "\x1b[2K":
            lines[row] = ""
        elif code != "\r" and not code.startswith("\x1b[?"):
            lines[row] += code
    return lines


def drawn(lines: list[str]) -> str:
    """Return the lines as a picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text("$ make try", style="bold"))
    console.print(Text.from_ansi("\n".join(lines).rstrip()), soft_wrap=True)
    return FONTS.sub("", console.export_svg(title="", unique_id="try"))


if __name__ == "__main__":
    PICTURE.write_text(drawn(screen(run())), "utf-8")
