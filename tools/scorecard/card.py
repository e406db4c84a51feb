"""The scorecard as a file, docs/scorecard/latest.json: its schema, how rows come in, how it is read.

A reader outside may rely on it: SCHEMA changes when a field changes its meaning, and the page says what to cite.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from everturn.testing.results import Status

SCHEMA = 1
FILE = Path(__file__).parents[2] / "docs" / "scorecard" / "latest.json"


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A clause that is broken or untested. `kind` and `story` are of the first violation; `replay` is a command."""

    clause: str
    status: Status
    kind: str = ""
    story: str = ""
    detail: str = ""
    replay: str = ""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a run. `busy_elsewhere`: how many processors other programs kept busy meanwhile, on average."""

    system: str
    python: str
    processors: int
    nice: int
    busy_elsewhere: float | None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one store, of one run. `started` is ISO 8601 in UTC; `versions` are of the packages that count."""

    store: str
    target: str
    command: str
    contract: str
    clauses: int  # of this contract, and of these layers, on that day
    started: str
    seconds: float
    budget: int | None  # seconds; None for a quick run, which does the least of every clause
    seed: int
    everturn: str
    commit: str
    versions: dict[str, str]
    machine: Machine
    counts: dict[Status, int]
    holds: tuple[str, ...]
    not_offered: tuple[str, ...]
    findings: tuple[Finding, ...]
    complaints: tuple[str, ...] = ()


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """All rows. A row is of the contract that it names; rows of two contracts are never in one card."""

    schema: int = SCHEMA
    contract: str
    results: tuple[Result, ...]


class BadCard(ValueError):
    """The file is no scorecard of this schema."""


def read(path: Path = FILE) -> Card | None:
    """Read the card; None if there is none yet. Raises BadCard."""
    if not path.exists():
        return None
    try:
        card = msgspec.json.decode(path.read_bytes(), type=Card)
    except msgspec.DecodeError as exc:
        raise BadCard(f"{path.name}: {exc}") from exc
    if card.schema != SCHEMA:
        raise BadCard(f"{path.name}: schema {card.schema}; this reads {SCHEMA}")
    return card


def with_result(card: Card | None, result: Result, order: Iterable[str]) -> Card:
    """Put a result in the place of the earlier one of its target, in the order of the targets.

    Targets that are no longer in the order go, and so does every row of another contract.
    """
    kept = () if card is None else card.results
    by_target = {one.target: one for one in kept if one.contract == result.contract} | {result.target: result}
    return Card(contract=result.contract, results=tuple(by_target[name] for name in order if name in by_target))


def write(card: Card, path: Path = FILE) -> None:
    """Write the card, replacing the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")
