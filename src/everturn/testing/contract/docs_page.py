"""Makes docs/contract.md from the clauses, so that every promise on the page is also run."""

from __future__ import annotations

from importlib.resources import files
from itertools import groupby

from everturn.testing.contract import CLAUSES
from everturn.testing.results import CONTRACT_VERSION
from everturn.testing.shapes import SHAPES

_HEAD = "| clause | promise | the incident behind it | needs |\n|---|---|---|---|\n"


def page() -> str:
    """Return the whole page."""
    shapes = "\n".join(
        f"| {shape.name} | `{shape.calls[0]}` | `{shape.calls[1]}` | one {shape.unit} |" for shape in SHAPES
    )
    top = files(__package__).joinpath("page_top.md").read_text("utf-8")
    parts = [top.format(number=len(CLAUSES), version=CONTRACT_VERSION, shapes=shapes)]
    for layer, clauses in groupby(CLAUSES, key=lambda clause: clause.layer):
        parts.append(f"\n## {layer.capitalize()}\n\n{_HEAD}")
        for clause in (of_layer := tuple(clauses)):
            needs = ", ".join(need.replace("|", " or ") for need in clause.needs)
            parts.append(f"| `{clause.id}` | {clause.promise} | {_cell(clause.incident)} | {needs} |\n")
        if hints := [f"- `{clause.id}`: {clause.hint}\n" for clause in of_layer if clause.hint]:
            parts.append(f"\nHints:\n\n{''.join(hints)}")
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
