"""A clause of the contract: a promise with a name, the incident behind it, and the test that shows it.

The clauses themselves are in contract/. runner.py runs them and decides their status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from everturn.testing.results import Layer, Violation
from everturn.testing.workers.messages import Fault, Step

if TYPE_CHECKING:
    from everturn.testing.kit.kit import Kit


class Clause(msgspec.Struct, frozen=True):
    """One promise. `needs` are operations or options that the target must offer (`a|b`: one of them); `weight` is the
    clause's part of a run's time; `since` is the first version of the contract that has it; `remedy` says in one line
    what to change in a store that breaks it."""

    id: str
    layer: Layer
    promise: str
    incident: str
    test: Callable[[Kit], None]
    needs: tuple[str, ...] = ()
    weight: float = 1.0
    since: int = 1
    remedy: str = ""

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that the clause is about: its needs, one by one."""
        return tuple(name for need in self.needs for name in need.split("|"))

    def missing(self, offered: frozenset[str]) -> tuple[str, ...]:
        """List the needs of the clause that the target does not offer."""
        return tuple(need for need in self.needs if offered.isdisjoint(need.split("|")))


class ClauseRegistry:
    """Clauses of one layer, in the order they are written. Each module of contract/ has one.

    `since` is the first version of the contract that has them, unless a clause names another.
    """

    def __init__(self, layer: Layer, *, since: int = 1) -> None:
        self.layer = layer
        self.since = since
        self.clauses: list[Clause] = []

    def clause(
        self,
        name: str,
        promise: str,
        *,
        incident: str,
        needs: Iterable[str] = (),
        weight: float = 1.0,
        since: int | None = None,
    ) -> Callable[[Callable[[Kit], None]], Callable[[Kit], None]]:
        """Register a test as a clause (a decorator)."""

        def register(test: Callable[[Kit], None]) -> Callable[[Kit], None]:
            version = self.since if since is None else since
            self.clauses.append(Clause(name, self.layer, promise, incident, test, tuple(needs), weight, version))
            return test

        return register


def collected(modules: Iterable[ModuleType], remedies: Mapping[str, str]) -> tuple[Clause, ...]:
    """Collect the clauses of these modules, in order, each with its remedy. Raises ValueError if two have one id, and
    KeyError for one without a remedy."""
    clauses = tuple(
        msgspec.structs.replace(clause, remedy=remedies[clause.id])
        for module in modules
        for clause in module.registry.clauses
    )
    names = [clause.id for clause in clauses]
    if len(names) != len(set(names)):
        raise ValueError(f"two clauses have one id: {sorted(name for name in names if names.count(name) > 1)}")
    return clauses


# --- ends of a clause that does not pass -----------------------------------------------------------------------------


class Broken(Exception):
    """The promise was broken; the violations show how."""

    def __init__(self, violations: Iterable[Violation], detail: str = "") -> None:
        self.violations = tuple(violations)
        self.detail = detail
        super().__init__(detail or (self.violations[0].story if self.violations else ""))


class Untested(Exception):
    """The promise is offered and could not be put to the test; the text says why."""


class NotOffered(Exception):
    """The target does not offer the clause, for a reason that no `needs` can name; the text says which."""


class StoreRaised(Exception):
    """The store raised an error where it should have worked."""

    def __init__(self, step: Step, fault: Fault) -> None:
        super().__init__(f"{describe_step(step)} raised {fault}")
        self.step = step
        self.fault = fault


# A missing extra, or a method that only raises NotImplementedError, breaks no promise.
_NOT_OFFERED = frozenset({"Unsupported", "NotImplementedError", "ImportError", "ModuleNotFoundError"})


def is_not_offered(fault: Fault) -> bool:
    """Whether a fault means that the store, or this installation of it, does not offer the operation at all."""
    return fault.kind in _NOT_OFFERED


def describe_step(step: Step) -> str:
    """Describe a step as a call: `trim('s1', 3)`."""
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
