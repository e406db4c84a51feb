"""What a clause of the contract is: a promise with a name, the incident behind it, and the test that shows it.

The clauses themselves are in contract/, by layer. How they are run, and what a run makes of them, is runner.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from everturn.testing.results import Layer, Violation
from everturn.testing.workers.messages import Fault, Step

if TYPE_CHECKING:
    from everturn.testing.kit.kit import Kit


class Clause(msgspec.Struct, frozen=True):
    """One promise. `needs` names what must be offered (`a|b`: one of them); `weight` its part of a run's time."""

    id: str
    layer: Layer
    promise: str
    incident: str
    test: Callable[[Kit], None]
    needs: tuple[str, ...] = ()
    weight: float = 1.0

    def missing(self, offered: frozenset[str]) -> tuple[str, ...]:
        """What the clause needs and the target does not offer."""
        return tuple(need for need in self.needs if offered.isdisjoint(need.split("|")))


class Book:
    """The clauses of one layer, in the order they are written. A module of contract/ holds one."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.clauses: list[Clause] = []

    def clause(
        self, name: str, promise: str, *, incident: str, needs: Iterable[str] = (), weight: float = 1.0
    ) -> Callable[[Callable[[Kit], None]], Callable[[Kit], None]]:
        """Enter a test into the book."""

        def enter(test: Callable[[Kit], None]) -> Callable[[Kit], None]:
            self.clauses.append(Clause(name, self.layer, promise, incident, test, tuple(needs), weight))
            return test

        return enter


def collected(modules: Iterable[ModuleType]) -> tuple[Clause, ...]:
    """The clauses of these modules, in their order. Raises ValueError if two have one id."""
    clauses = tuple(clause for module in modules for clause in module.book.clauses)
    names = [clause.id for clause in clauses]
    if len(names) != len(set(names)):
        raise ValueError(f"two clauses have one id: {sorted(name for name in names if names.count(name) > 1)}")
    return clauses


# --- how a clause ends when it does not pass -------------------------------------------------------------------------


class Broken(Exception):
    """The promise was broken; the violations show how."""

    def __init__(self, violations: Iterable[Violation], detail: str = "") -> None:
        self.violations = tuple(violations)
        self.detail = detail
        super().__init__(detail or (self.violations[0].story if self.violations else ""))


class Untested(Exception):
    """The promise is offered and could not be put to the test; the text says why."""


class NotOffered(Exception):
    """What the clause needs is not there, for a reason that no list of needs can name; the text says which."""


class StoreRaised(Exception):
    """The store raised where it should have done its work."""

    def __init__(self, step: Step, fault: Fault) -> None:
        super().__init__(f"{said(step)} raised {fault}")
        self.step = step
        self.fault = fault


# An extra that is not installed, or a method that is there to say that it is not: neither breaks a promise.
_NOT_OFFERED = frozenset({"Unsupported", "NotImplementedError", "ImportError", "ModuleNotFoundError"})


def is_not_offered(fault: Fault) -> bool:
    """Whether a fault says that the store, or this installation of it, does not do such a thing at all."""
    return fault.kind in _NOT_OFFERED


def said(step: Step) -> str:
    """A step in words: `trim('s1', 3)`."""
    shown = [] if step.session is None else [repr(step.session)]
    for argument in step.args:
        if isinstance(argument, tuple | list):
            shown.append("[" + ", ".join(_short(getattr(one, "content", one)) for one in argument[:4]) + "]")
        else:
            shown.append(_short(argument))
    shown += [f"{name}={_short(value)}" for name, value in step.options.items()]
    return f"{step.op}({', '.join(shown)})"


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text)} characters)"
