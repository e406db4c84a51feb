"""The table for people and the JSON for machines. Measures nothing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.plan import Bar, TableRow
from benchmarks.stats import Spread

HEADINGS = ("row", "ours", "baseline", "ratio (quartiles)", "bar", "reached")


def table(rows: Sequence[TableRow]) -> str:
    """Aligned plain text, one line per row, notes below."""
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text.insert(1, "-+-".join("-" * width for width in widths))
    notes = [f"{row.name}: {row.note}" for row in rows if row.note]
    return "\n".join([*text, "", *notes] if notes else text)


def line(row: TableRow) -> str:
    """One row on its own, for a person who waits."""
    return " | ".join(_cells(row)) + (f"  [{row.note}]" if row.note else "")


def write_json(
    path: Path,
    rows: Sequence[TableRow],
    machine: dict[str, str | float | None],
    versions: dict[str, str],
    arguments: str,
) -> None:
    """Everything the table shows and the extremes it does not. `arguments`: those that the run was started with."""
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "arguments": arguments,
        "machine": machine,
        "versions": versions,
        "rows": [asdict(row) | {"reached": row.reached} for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of a row that was read from the JSON."""
    parts = dict(row)
    parts.pop("reached")
    parts["figure"] = Spread(**row["figure"]) if row["figure"] else None
    parts["bar"] = Bar(**row["bar"]) if row["bar"] else None
    return _cells(TableRow(**parts))


def _cells(row: TableRow) -> tuple[str, ...]:
    figure = _figure(row.figure, row.unit) if row.figure else "-"
    return (row.name, row.ours or "-", row.baseline or "-", figure, _bar(row.bar, row.unit), _reached(row))


def _figure(figure: Spread, unit: str) -> str:
    middle = f"{figure.median:.2f}{unit}" if unit else f"{figure.median:.0f}"
    return middle if figure.rounds == 1 else f"{middle} ({figure.low:.2f}..{figure.high:.2f})"


def _bar(bar: Bar | None, unit: str) -> str:
    if bar is None:
        return "-"
    return f"{bar.sense} {bar.limit:g}{unit}" + (" wanted" if bar.wanted else "")


def _reached(row: TableRow) -> str:
    if row.reached is None:
        return "-"
    if row.reached:
        return "yes"
    return "no" if row.bar and row.bar.wanted else "NO"
