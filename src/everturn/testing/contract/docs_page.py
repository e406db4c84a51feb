"""Makes docs/contract.md from the clauses, so that every promise on the page is also run."""

from __future__ import annotations

from importlib.resources import files
from itertools import groupby

from everturn.testing.contract import CLAUSES
from everturn.testing.results import CONTRACT_VERSION, CONTRACT_VERSIONS
from everturn.testing.shapes import SHAPES

_HEAD = "| clause | promise | the incident behind it | the usual remedy | needs |\n|---|---|---|---|---|\n"


def page() -> str:
    """Return the whole page."""
    shapes = "\n".join(
        f"| {shape.name} | `{shape.calls[0]}` | `{shape.calls[1]}` | one {shape.unit} |" for shape in SHAPES
    )
    top = files(__package__).joinpath("page_top.md").read_text("utf-8")
    parts = [top.format(number=len(CLAUSES), version=CONTRACT_VERSION, shapes=shapes)]
    for layer, clauses in groupby(CLAUSES, key=lambda clause: clause.layer):
        parts.append(f"\n## {layer.capitalize()}\n\n{_HEAD}")
        for clause in clauses:
            needs = ", ".join(need.replace("|", " or ") for need in clause.needs)
            parts.append(
                f"| `{clause.id}` | {clause.promise} | {_cell(clause.incident)} | {_cell(clause.remedy)} | {needs} |\n"
            )
    parts.append(files(__package__).joinpath("page_versions.md").read_text("utf-8"))
    return "".join([*parts, *map(_version, reversed(CONTRACT_VERSIONS))])


def _version(version: str) -> str:
    """Write the entry of a version in the changelog of the contract."""
    added = [clause for clause in CLAUSES if clause.since == int(version)]
    number = sum(clause.since <= int(version) for clause in CLAUSES)
    if version == CONTRACT_VERSIONS[0]:
        return f"\n**Version {version}**: the first {number} clauses.\n"
    by_layer = groupby(added, key=lambda clause: clause.layer)
    lines = [f"- {layer}: {', '.join(f'`{clause.id}`' for clause in clauses)}\n" for layer, clauses in by_layer]
    return f"\n**Version {version}**: {number} clauses; {len(added)} are new:\n\n{''.join(lines)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
