"""Draws a violation as SVG: a row for each worker, a bar for each call, and under a read the ids it saw. Pure.

Classes only, no styles: `style()` is the sheet that goes with it, and a page may bring its own colours.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import msgspec

from everturn.testing.results import Event, Violation
from everturn.ui.html import Html, Node, named, tag

_LEFT, _TOP, _RIGHT = 12, 10, 24
_NAME, _BAR, _CHIP, _GAP = 18, 18, 18, 16  # heights: of words, of a bar, of what a read saw, between rows
_WIDTH = 860  # of a picture that is not crowded
_NARROW, _WIDE = 56, 170  # between two moments
_LETTER = 7  # the width of one, about
_SEEN = 8  # messages shown under a read


class _Bar(msgspec.Struct):
    """One call, as it is drawn."""

    invoke: Event
    completion: Event | None
    shows: bool
    room: int = 0  # letters that fit before the next bar of its row


def style() -> str:
    """Return the style sheet. It uses the colours --ink, --soft, --line, --good, --bad, --warn, --paper."""
    return files(__package__).joinpath("svg.css").read_text("utf-8")


def drawn(violation: Violation) -> Html | None:
    """Draw the picture; None if the violation has no events. Time runs to the right, not to scale."""
    bars = _bars(violation)
    if not bars:
        return None
    moments = sorted({event.at for event in violation.events})
    step = max(_NARROW, min(_WIDE, _WIDTH // max(len(moments), 1)))
    workers = list(dict.fromkeys(bar.invoke.worker for bar in bars))
    left = _LEFT + _LETTER * min(max(len(worker) for worker in workers), 14) + 14
    places = {moment: left + step * place for place, moment in enumerate(moments)}
    width = left + step * len(moments) + _RIGHT
    about = dict.fromkeys(violation.values)
    tops, height = _rows(workers, bars, about)
    bottom = height
    for worker in workers:
        row = [bar for bar in bars if bar.invoke.worker == worker]
        for bar, follower in zip(row, [*row[1:], None], strict=True):
            end = places[follower.invoke.at] if follower else width
            bar.room = (end - places[bar.invoke.at]) // _LETTER
    return tag(
        "svg",
        tag("title", f"{violation.kind}: who did what when, and what readers saw"),
        *(_moment(places[moment], bottom, moment - moments[0], moments.index(moment)) for moment in moments),
        *(_row(worker, tops[worker], width) for worker in workers),
        *(_call(bar, places, tops[bar.invoke.worker] + _NAME, width - _RIGHT, violation) for bar in bars),
        viewBox=f"0 0 {width} {height + 24}",
        width=width,
        height=height + 24,
        role="img",
        class_="violation",
    )


def _bars(violation: Violation) -> list[_Bar]:
    bars: dict[tuple[str, int], _Bar] = {}
    for place, event in enumerate(violation.events):
        name = (event.worker, event.op)
        if event.type == "invoke":
            bars[name] = _Bar(event, None, shows=False)
        elif name in bars:
            bars[name].completion = event
            bars[name].shows = place == violation.shown_by
    return list(bars.values())


def _rows(workers: list[str], bars: list[_Bar], about: dict[str, None]) -> tuple[dict[str, int], int]:
    """Find the top of each row, and the bottom of the last. A row is as high as its longest read needs."""
    tops, top = {}, _TOP
    for worker in workers:
        tops[worker] = top
        chips = max(len(_chips(bar, about)) for bar in bars if bar.invoke.worker == worker)
        top += _NAME + _BAR + _CHIP * chips + _GAP
    return tops, top


def _moment(x: int, bottom: int, after: int, number: int) -> Html:
    label = tag("text", _time(after), x=x, y=bottom + 14, class_="time")
    return tag("g", tag("path", d=f"M{x} {_TOP} V{bottom}", class_="moment"), label if number % 2 == 0 else None)


def _row(worker: str, top: int, width: int) -> Html:
    y = top + _NAME + _BAR // 2
    name = tag("text", _cut(named(worker), 14), tag("title", named(worker)), x=_LEFT, y=y + 4, class_="worker")
    return tag("g", name, tag("path", d=f"M{_LEFT} {top - _GAP // 2} H{width - _LEFT}", class_="row"))


def _call(bar: _Bar, places: dict[int, int], y: int, right: int, violation: Violation) -> Html:
    """Draw a call: the bar from invoke to end, its words above, and what it saw below."""
    about = dict.fromkeys(violation.values)
    invoke, end = bar.invoke, bar.completion
    outcome = end.type if end else "info"
    x = places[invoke.at]
    until = places[end.at] if end else right
    writes = any(value in about for value in invoke.values or ())
    marks = [invoke.f, outcome, "about" if writes else "", "shows" if bar.shows else ""]
    words = _words(invoke)
    return tag(
        "g",
        tag("title", named(f"{invoke.worker}, call {invoke.op}: {words}: {_ended(end)}")),
        # It may take effect long after it raised.
        tag("path", d=f"M{until} {y + _BAR // 2} H{right}", class_="tail") if outcome == "info" else None,
        tag("rect", x=x, y=y, width=max(until - x, 6), height=_BAR, rx=4, class_="bar"),
        tag("text", _symbol(bar, outcome), x=x + 5, y=y + 13, class_="symbol"),
        tag("text", _cut(named(words), min(bar.room, 60)), x=x, y=y - 5, class_="words"),
        *_drawn_chips(bar, x, y + _BAR, about),
        class_=" ".join(filter(None, ["call", *marks])),
    )


def _drawn_chips(bar: _Bar, x: int, y: int, about: dict[str, None]) -> Iterator[Node]:
    letters = min(max(bar.room - 2, 6), 24)
    for place, (kind, value) in enumerate(_chips(bar, about)):
        text = _cut(named(value), letters)
        top = y + place * _CHIP + 3
        box = tag("rect", x=x, y=top, width=len(text) * _LETTER + 10, height=_CHIP - 3, rx=7)
        yield tag("g", tag("title", named(value)), box, tag("text", text, x=x + 5, y=top + 12), class_=f"chip {kind}")


def _chips(bar: _Bar, about: dict[str, None]) -> list[tuple[str, str]]:
    """List the ids under a read: those it saw, and those it should have seen. (kind, text) from top to bottom."""
    if bar.invoke.f != "read" or bar.completion is None or bar.completion.values is None:
        return []
    seen = bar.completion.values
    chips = [("seen about" if value in about else "seen", value) for value in seen[:_SEEN]]
    if len(seen) > _SEEN:
        chips.append(("note", f"and {len(seen) - _SEEN} more"))
    missing = [value for value in about if value not in seen] if bar.shows else []
    chips += [("missing", value) for value in missing[:_SEEN]]
    return chips or [("note", "nothing")]


def _words(invoke: Event) -> str:
    values = ", ".join(invoke.values or ())
    parts = (invoke.f, values, invoke.snapshot, None if invoke.limit is None else f"to {invoke.limit}")
    return " ".join(part for part in parts if part)


def _ended(end: Event | None) -> str:
    if end is None:
        return "never heard of again"
    return {"ok": "ok", "fail": "not written", "info": "may have happened or not"}.get(end.type, "") + (
        f" ({end.error})" if end.error else ""
    )


def _symbol(bar: _Bar, outcome: str) -> str:
    if bar.shows:
        return "✗"
    return {"ok": "✓", "fail": "refused", "info": "?"}.get(outcome, "")


def _cut(text: str, letters: int) -> str:
    letters = max(letters, 6)
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _time(nanoseconds: int) -> str:
    if nanoseconds < 10_000:
        return f"+{nanoseconds} ns"
    if nanoseconds < 10_000_000:
        return f"+{nanoseconds / 1e6:.2f} ms"
    return f"+{nanoseconds / 1e6:.0f} ms" if nanoseconds < 10**10 else f"+{nanoseconds / 1e9:.1f} s"
