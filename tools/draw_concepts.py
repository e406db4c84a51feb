"""Draws the pictures of docs/concepts from the lists below, one SVG file each.

    python tools/draw_concepts.py            # writes them into docs/images
    python tools/draw_concepts.py --check    # exits with 1 if a file is not what would be written

A picture is a list of parts on a grid of points, 600 wide: what stands in it is said in its own lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs/images"
WIDTH = 600
STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #24292f } .mid { text-anchor: middle } .small { font-size: 12.5px }
  .note { fill: #57606a } .name { font-weight: 600 } .code { font-family: ui-monospace, monospace; font-size: 12.5px }
  .page { fill: #ffffff } .box { fill: #eef3fb; stroke: #4a6fa5 } .own { fill: #e8f5ec; stroke: #3c8a54 }
  .left { fill: none; stroke: #8c959f; stroke-dasharray: 4 3 } .bad { fill: #fdeceb; stroke: #c2413a }
  .line { stroke: #57606a; fill: none; stroke-width: 1.4 } .tip { fill: #57606a }
  .flag { fill: #b35900; stroke: none } .on { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note { fill: #9aa4af } .page { fill: #0d1117 }
    .box { fill: #182233; stroke: #7aa2e3 } .own { fill: #12261a; stroke: #57b274 }
    .bad { fill: #2d1513; stroke: #f0837b } .line { stroke: #9aa4af } .tip { fill: #9aa4af }
    .flag { fill: #e39a52 } .on { fill: #0d1117 }
  }
"""
Parts = list[str]


def words(x: float, y: float, text: str, kind: str = "") -> Parts:
    return [f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>']


def box(x: float, y: float, width: float, text: str, kind: str = "box", height: float = 34) -> Parts:
    frame = f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'
    look = "mid small" + (" note" if kind == "left" else "")
    return [frame, *words(x + width / 2, y + height / 2 + 4.5, text, look)]


def arrow(*points: tuple[float, float]) -> Parts:
    """Draw a line through the points, with a tip at the last one."""
    (x0, y0), (x, y) = points[-2:]
    across, down = (x > x0) - (x < x0), (y > y0) - (y < y0)
    tip = [(x, y), (x - 7 * across - 4 * down, y - 7 * down - 4 * across)]
    tip.append((x - 7 * across + 4 * down, y - 7 * down + 4 * across))
    path = " ".join(f"{a:g},{b:g}" for a, b in points)
    return [
        f'<polyline class="line" points="{path}"/>',
        f'<polygon class="tip" points="{" ".join(f"{a:g},{b:g}" for a, b in tip)}"/>',
    ]


def flag(x: float, y: float, text: str, width: float = 64) -> Parts:
    """Draw a small label with a point below it: the head, or a snapshot."""
    return [
        f'<rect class="flag" x="{x - width / 2:g}" y="{y - 26:g}" width="{width:g}" height="19" rx="4"/>',
        f'<polygon class="flag" points="{x - 5:g},{y - 8:g} {x + 5:g},{y - 8:g} {x:g},{y - 1:g}"/>',
        *words(x, y - 12, text, "mid small name on"),
    ]


def entries(y: float, texts: Iterable[tuple[str, str]], x: float = 24, step: float = 70) -> Parts:
    """Draw a row of entries, each with its text and its kind."""
    placed = enumerate(texts)
    return [part for place, (text, kind) in placed for part in box(x + place * step, y, step - 8, text, kind)]


def row(kinds: str) -> list[tuple[str, str]]:
    """`bbo` is two entries and one of the writer we look at, numbered from 1."""
    names = {"b": "box", "o": "own", "l": "left"}
    return [(str(number), names[kind]) for number, kind in enumerate(kinds, 1)]


def session() -> Parts:
    return [
        *words(24, 32, "session customer-42", "name"),
        *entries(44, [("1 user", "box"), ("2 assistant", "box"), ("3 user", "box"), ("4 assistant", "box")], step=94),
        *words(410, 66, "life 5f0c...", "small note"),
        *words(24, 114, "session customer-43", "name"),
        *entries(126, [("1 user", "box"), ("2 assistant", "box")], step=94),
        *words(222, 148, "expired, then", "small note"),
        *entries(126, [("1 user", "own")], x=320, step=94),
        *words(410, 148, "a new life, from 1 again", "small note"),
    ]


def turn() -> Parts:
    return [
        *box(24, 24, 190, "worker A: two messages", "box"),
        *box(386, 24, 190, "worker B: four messages", "own"),
        *arrow((118, 58), (118, 116)),
        *arrow((480, 58), (480, 88), (390, 88), (390, 116)),
        *entries(122, [("1 user", "box"), ("2 assistant", "box")], x=24, step=94),
        *entries(122, [("3 user", "own"), ("4 call", "own"), ("5 result", "own"), ("6 assistant", "own")], 220, 90),
        *words(110, 182, "turn of A", "mid small note"),
        *words(396, 182, "turn of B: whole, or not there at all", "mid small note"),
    ]


def version() -> Parts:
    steps = [("version 1", "append"), ("version 2", "append"), ("version 3", "trim"), ("version 4", "append")]
    parts = []
    for place, (name, change) in enumerate(steps):
        x = 24 + place * 144
        parts += [*box(x, 28, 108, name), *words(x + 54, 82, change, "mid small note")]
        if place:
            parts += arrow((x - 36, 45), (x - 2, 45))
    return [
        *parts,
        *box(24, 112, 250, "append, expected_version=4", "own"),
        *words(290, 134, "is made: version 5"),
        *box(24, 158, 250, "append, expected_version=2", "bad"),
        *words(290, 180, "VersionConflict; nothing is written"),
    ]


def head() -> Parts:
    return [
        *flag(125, 48, "head", 52),
        *entries(50, row("bbllll")),
        *words(450, 72, "after a rollback to 2", "small note"),
        *flag(545, 138, "head", 52),
        *entries(140, row("bbllllo")),
        *entries(140, [("8", "own")], x=514),
        *arrow((125, 174), (125, 200), (475, 200), (475, 178)),
        *words(300, 220, "7 follows 2. History: 1, 2, 7, 8. Entries 3 to 6 stay stored", "mid small note"),
    ]


def snapshot() -> Parts:
    return [
        *flag(125, 48, "snapshot", 76),
        *flag(265, 48, "head", 52),
        *entries(50, row("bbbb")),
        *words(320, 72, "a snapshot is a copy of the state,", "small note"),
        *words(320, 90, "not of the entries", "small note"),
        *flag(125, 138, "snapshot", 76),
        *flag(125, 160, "head", 52),
        *entries(162, row("bbll")),
        *words(320, 184, "rollback moves the head; both stay", "small note"),
    ]


def undo() -> Parts:
    return [
        *flag(265, 48, "head", 52),
        *entries(50, row("bbbb")),
        *words(340, 72, "four entries"),
        *arrow((160, 88), (160, 142)),
        *words(172, 110, 'rollback_to_snapshot("customer-42", ...)', "code"),
        *flag(125, 160, "head", 52),
        *entries(162, row("bbll")),
        *words(340, 184, "the history ends at 2"),
        *arrow((160, 200), (160, 254)),
        *words(172, 226, 'undo("customer-42")', "code"),
        *flag(265, 272, "head", 52),
        *entries(274, row("bbbb")),
        *words(340, 296, "as it was before the rollback"),
    ]


def key() -> Parts:
    return [
        *box(24, 20, 130, "your worker"),
        *box(446, 20, 130, "the store"),
        *arrow((154, 78), (440, 78)),
        *words(297, 70, 'append, key="request-77"', "mid code"),
        *entries(62, [("turn", "own")], x=450, step=130),
        *arrow((444, 118), (330, 118)),
        *words(318, 123, "x", "mid name"),
        *words(150, 123, "the answer is lost", "mid small note"),
        *arrow((154, 168), (440, 168)),
        *words(297, 160, 'append, key="request-77"', "mid code"),
        *words(511, 173, "there already", "mid small note"),
        *arrow((444, 206), (160, 206)),
        *words(297, 198, "receipt, replayed=True", "mid code"),
    ]


PICTURES = {
    "concept-session": (session, 184, "Two sessions, each with entries of its own, numbered from 1"),
    "concept-turn": (turn, 200, "Turns of two workers stand one after the other in the session"),
    "concept-version": (
        version,
        212,
        "Each change makes the next version; a change that expects an old one is refused",
    ),
    "concept-head": (head, 236, "After a rollback the next entry follows the entry that was rolled back to"),
    "concept-snapshot": (snapshot, 218, "A snapshot marks a state; a rollback moves the head back to it"),
    "concept-undo": (undo, 330, "Undo brings the head back to where it was before the rollback"),
    "concept-key": (key, 228, "A retry with the same key finds the turn that was written"),
}


def picture(name: str) -> str:
    """Return a picture as SVG text."""
    draw, height, title = PICTURES[name]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
    ]
    return "\n".join([*lines, *draw(), "</svg>", ""])


def main() -> None:
    drawn = {FOLDER / f"{name}.svg": picture(name) for name in PICTURES}
    if sys.argv[1:] == ["--check"]:
        stale = [file.name for file, text in drawn.items() if not file.exists() or file.read_text("utf-8") != text]
        sys.exit(f"stale: {', '.join(stale)}" if stale else 0)
    for file, text in drawn.items():
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
