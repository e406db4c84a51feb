"""Charts as SVG, drawn by hand: two logarithmic axes, a line for each contender. Pure."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator

from everturn.bench.measuring import Chart
from everturn.core.numbers import size

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 80, 250, 48, 56
COLOURS = ("#1a7f37", "#57606a", "#0969da", "#bc4c00", "#8250df", "#bf3989", "#7d4e00")


def drawn(chart: Chart) -> str:
    """The chart as a picture that can be read in light and in dark."""
    points = [point for curve in chart.curves for point in curve.points]
    if not points:
        return ""
    xs = sorted({point.x for point in points})
    low: float = 10 ** math.floor(math.log10(min(point.y for point in points)))
    high: float = 10 ** math.ceil(math.log10(max(point.y for point in points) * 1.0001))

    def across(x: float) -> float:
        span = math.log(xs[-1] / xs[0]) or 1.0
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(x / xs[0]) / span

    def down(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(y / low) / math.log(high / low)

    def parts() -> Iterator[str]:
        yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        yield _text(LEFT, 24, chart.title, weight="bold", size_=15)
        tick: float = low
        while tick <= high * 1.01:
            y = down(tick)
            yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#d0d7de"/>'
            yield _text(LEFT - 8, y + 4, value(tick, chart.y), anchor="end")
            tick *= 10
        for x in xs:
            yield _text(across(x), HEIGHT - BOTTOM + 20, f"{x:,}", anchor="middle")
        yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, chart.x, anchor="middle")
        # Names stand beside the end of their lines, pushed apart where these meet.
        ends = sorted((down(curve.points[-1].y), number) for number, curve in enumerate(chart.curves) if curve.points)
        places: dict[int, float] = {}
        last = TOP - 16.0
        for y, number in ends:
            last = max(y, last + 16)
            places[number] = last
        for number, curve in enumerate(chart.curves):
            if not curve.points:
                continue
            colour = COLOURS[number % len(COLOURS)]
            line = " ".join(f"{across(point.x):.1f},{down(point.y):.1f}" for point in curve.points)
            width = 3 if number == 0 else 1.5
            yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
            for point in curve.points:
                told = f"{curve.contender}: {value(point.y, chart.y)} at {point.x:,} {chart.x}"
                cx, cy = across(point.x), down(point.y)
                yield (
                    f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="{width + 1}" fill="{colour}">'
                    f"<title>{html.escape(told)}</title></circle>"
                )
            end = curve.points[-1]
            yield _text(across(end.x) + 10, places[number] + 4, curve.contender, fill=colour)

    body = "".join(parts())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" role="img" aria-label="{html.escape(chart.title)}">{body}</svg>\n'
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    weight: str = "normal",
    size_: int = 12,
    fill: str = "#1b1f24",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size_}" '
        f'fill="{fill}">{html.escape(text)}</text>'
    )


def value(figure: float, unit: str) -> str:
    """A figure with its unit, for people."""
    if unit == "bytes":
        return size(figure)
    if unit != "seconds":
        return f"{figure:,.0f}/s"
    for name, length in (("s", 1.0), ("ms", 1e-3)):
        if figure >= length:
            return f"{figure / length:.3g} {name}"
    return f"{figure * 1e6:.3g} us"
