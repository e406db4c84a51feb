"""The timeline of a session as SVG: turns as dots, snapshots as flags, rollbacks and undo as arrows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from everturn.ui import change_graph
from everturn.ui.change_graph import Moment
from everturn.ui.html import Html, Node, named, tag
from everturn.web.links import url

ROW, COLUMN, LEFT, TOP = 26, 18, 16, 18
MOST_COLUMNS = 8  # more would push the words off the page; branches beyond share the last column


def drawn(moments: Sequence[Moment], session_id: str, words: Mapping[int, str], at: int | None) -> Html:
    """Draw the moments, newest first, each a link to the state after it.

    `words` describe each moment, by version. `at` is the version that the page shows; None for the present.
    """
    if not moments:
        return tag("p", "No changes are kept.", class_="facts")
    columns = change_graph.columns(moments)
    path = change_graph.on_path(moments)
    rows = {moment.version: len(moments) - 1 - place for place, moment in enumerate(moments)}
    width = min(max(columns.values(), default=0), MOST_COLUMNS) + 1

    def place(version: int, column: int) -> tuple[int, int]:
        return LEFT + COLUMN * min(column, MOST_COLUMNS), TOP + ROW * rows[version]

    def position(moment: Moment) -> tuple[int, int]:
        turn = moment.version if moment.is_turn else moment.head
        return place(moment.version, columns.get(turn or 0, 0))

    def edges() -> Iterator[Node]:
        for moment in moments:
            x, y = position(moment)
            style = "edge" if moment.version in path else "edge left"
            if moment.is_turn and moment.parent in rows:
                px, py = place(moment.parent or 0, columns.get(moment.parent or 0, 0))
                yield tag("path", d=_line(x, y, px, py), class_=style)
            elif not moment.is_turn and moment.head in rows and moment.change.kind in {"rollback", "undo"}:
                hx, hy = place(moment.head or 0, columns.get(moment.head or 0, 0))
                yield tag("path", d=f"M{x} {y} C{x - 14} {y + 10} {hx - 14} {hy - 10} {hx} {hy}", class_="edge moved")

    def marks() -> Iterator[Node]:
        for moment in moments:
            x, y = position(moment)
            left = moment.is_turn and moment.version not in path
            label = words.get(moment.version, moment.change.kind)
            chosen = moment.version == at or (at is None and moment is moments[-1])
            yield tag(
                "a",
                tag("title", f"version {moment.version}: ", named(label)),
                _mark(moment, x, y),
                tag(
                    "text",
                    tag("tspan", str(moment.version), class_="version"),
                    " ",
                    named(label if len(label) <= 48 else f"{label[:47]}…"),
                    x=LEFT + COLUMN * width,
                    y=y + 4,
                ),
                href=url("/session", id=session_id, at=moment.version),
                class_=" ".join(name for name, true in (("moment", True), ("gone", left), ("chosen", chosen)) if true),
                data_version=moment.version,
            )

    height = TOP + ROW * len(moments)
    return tag(
        "svg",
        *edges(),
        *marks(),
        width="100%",
        height=height,
        role="group",
        aria_label="timeline of the session, newest first",
        class_="timeline",
    )


def _line(x: int, y: int, px: int, py: int) -> str:
    if x == px:
        return f"M{x} {y} L{px} {py}"
    return f"M{x} {y} L{x} {py - ROW} C{x} {py - 8} {px} {py - ROW + 8} {px} {py}"


def _mark(moment: Moment, x: int, y: int) -> Html:
    match moment.change.kind:
        case "append" | "replace" | "fork":
            return tag("circle", cx=x, cy=y, r=5, class_="turn")
        case "snapshot":
            return tag("path", d=f"M{x - 3} {y + 7} V{y - 7} L{x + 8} {y - 3} L{x - 3} {y + 1}", class_="flag")
        case "rollback" | "undo":
            return tag("path", d=f"M{x + 5} {y - 5} L{x - 5} {y} L{x + 5} {y + 5} Z", class_="move")
        case "fold":
            return tag("path", d=f"M{x - 6} {y - 3} H{x + 6} M{x - 6} {y + 3} H{x + 6}", class_="cut")
        case "trim" | "clear":
            return tag("path", d=f"M{x - 6} {y} H{x + 6}", class_="cut")
    return tag("circle", cx=x, cy=y, r=3, class_="other")
