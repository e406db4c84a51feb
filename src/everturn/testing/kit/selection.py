"""Reads the choice of clauses, and the ledger of known failures, from a command line or an ini file.

It runs nothing.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from everturn.testing.kit.clause import Clause
from everturn.testing.kit.runner import Chosen
from everturn.testing.report.files import BadReport, read_json
from everturn.testing.results import CONTRACT_VERSION, CONTRACT_VERSIONS, LAYERS, Status


class BadChoice(ValueError):
    """There is no such clause, layer or ledger; the text says which there are."""


def of_version(contract: str | None) -> tuple[Clause, ...]:
    """List the clauses of a version of the contract; of the latest, if None. Raises BadChoice if there is none."""
    from everturn.testing.contract import clauses_of

    if contract is not None and contract not in CONTRACT_VERSIONS:
        raise BadChoice(f"there is no contract {contract!r}; there are {', '.join(CONTRACT_VERSIONS)}")
    return clauses_of(CONTRACT_VERSION if contract is None else contract)


def chosen(clauses: Sequence[Clause], names: Iterable[str] = (), layers: Iterable[str] = ()) -> list[Chosen]:
    """Choose clauses by id (`id`, or `id@n` for one point of a sweep) or by layer; all, if none are named.

    Raises BadChoice for an unknown name.
    """
    wanted_layers = [part.strip() for layer in layers for part in layer.split(",") if part.strip()]
    known_layers = [layer for layer in LAYERS if any(clause.layer == layer for clause in clauses)]
    for layer in wanted_layers:
        if layer not in known_layers:
            raise BadChoice(f"there is no layer {layer!r}; there are {', '.join(known_layers)}")
    by_id = {clause.id: clause for clause in clauses}
    named: list[Chosen] = []
    for name in names:
        clause_id, at, point = name.partition("@")
        if at and not point.isdigit():
            raise BadChoice(f"{name!r}: after the @ goes the number of a point, as in {clause_id}@7")
        named.append(Chosen(by_id[find(clauses, clause_id).id], int(point) if at else None))
    if named or not wanted_layers:
        return named or [Chosen(clause) for clause in clauses]
    return [Chosen(clause) for clause in clauses if clause.layer in wanted_layers]


def find(clauses: Sequence[Clause], clause_id: str) -> Clause:
    """Find the clause of this id. Raises BadChoice, with ids that are similar."""
    for clause in clauses:
        if clause.id == clause_id:
            return clause
    close = difflib.get_close_matches(clause_id, [clause.id for clause in clauses], n=4)
    hint = f"; did you mean {', '.join(close)}?" if close else "; everturn check --list names them all"
    raise BadChoice(f"there is no clause {clause_id!r}{hint}")


def read_baseline(path: Path) -> dict[str, Status]:
    """Read the statuses of an earlier run from its JSON report. Raises BadChoice, OSError."""
    try:
        report = read_json(path)
    except BadReport as exc:
        raise BadChoice(f"{path} is no baseline: {exc}") from exc
    return {clause.id: clause.status for clause in report.clauses}


def read_ledger(path: Path) -> dict[str, str]:
    """Read known failures from a TOML file: `clause-id = "reason"` under `[known]`. Raises BadChoice, OSError."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise BadChoice(f"{path} is no ledger: {exc}") from exc
    known = found.get("known")
    if set(found) != {"known"} or not isinstance(known, Mapping):
        raise BadChoice(f'{path} is no ledger: it has one table, [known], with lines like clause-id = "reason"')
    for name, reason in known.items():
        if not isinstance(reason, str) or not reason.strip():
            raise BadChoice(f"{path}: {name} needs a reason, as a string")
    return dict(known)
