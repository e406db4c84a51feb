"""Draws docs/images/layers.svg, the picture of docs/architecture.md, from the rows below.

    python tools/draw_layers.py            # writes it
    python tools/draw_layers.py --check    # exits with 1 if the file is not what would be written

A box names a file or a folder of src/everturn. It may import what stands below it, and nothing above or beside it.
tests/docs/test_architecture.py checks that every name exists; tests/store/test_layers.py checks the imports.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "docs/images/layers.svg"
# Rows from the top. A box: its name, what is in it, and its share of the width.
ROWS: list[list[tuple[str, str, int]]] = [
    [("cli/", "the command: everturn show, log, check, serve, ...", 6)],
    [("web/", "the inspector", 3), ("bench/", "measurements", 3)],
    [("adapters/", "for six frameworks", 2), ("testing/", "the contract kit", 2), ("transfer/", "copies, exports", 2)],
    [("connect.py", "opens a store by its URL or client", 4), ("ui/", "HTML and graphs", 2)],
    [("store/", "the methods users call; retries", 3), ("backends/", "sqlite, redis, postgres, or yours", 3)],
    [("backend.py", "the protocol between the two: one operation, one atomic request", 6)],
    [("core/", "pure rules: codec, paths, plan_change", 4), ("model/", "values", 1), ("errors.py", "errors", 1)],
]
WIDTH, HEIGHT, GAP, MARGIN = 760, 54, 10, 16
STYLE = """
  text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #24292f }
  .name { font: 600 14px ui-monospace, monospace }
  .page { fill: #ffffff } .box { fill: #eef3fb; stroke: #4a6fa5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .page { fill: #0d1117 } .box { fill: #182233; stroke: #7aa2e3 }
  }
"""


def picture() -> str:
    """Return the picture as SVG text."""
    height = 2 * MARGIN + len(ROWS) * (HEIGHT + GAP) - GAP + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Layers of everturn: each imports only what stands below it</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
    ]
    for number, row in enumerate(ROWS):
        y, x = MARGIN + number * (HEIGHT + GAP), float(MARGIN)
        share = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / sum(parts for *_, parts in row)
        for name, text, parts in row:
            width = share * parts
            middle = x + width / 2
            lines += [
                f'<rect class="box" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT}" rx="6"/>',
                f'<text class="name" x="{middle:.1f}" y="{y + 23}">{escape(name)}</text>',
                f'<text x="{middle:.1f}" y="{y + 42}">{escape(text)}</text>',
            ]
            x += width + GAP
    last = height - MARGIN
    return "\n".join([*lines, f'<text x="{WIDTH / 2}" y="{last}">imports point down, never up</text>', "</svg>", ""])


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(PICTURE.read_text("utf-8") != picture())
    PICTURE.write_text(picture(), "utf-8")
