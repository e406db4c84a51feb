"""The contract as a class of tests: `class TestMine(MemoryContract): target = factory`. One test per clause.

A subclass says what is tested, and not how: a clause that it overrides or removes is an error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from everturn.testing.contract import CLAUSES
from everturn.testing.kit.clause import Clause
from everturn.testing.kit.runner import Chosen
from everturn.testing.kit.target import Target, of_factory, parse
from everturn.testing.pytest.items import MARK, Contract


class MemoryContract:
    """Every clause of the contract, on `target`: a store URL, `package.module:factory`, or a factory itself.

    `quick`, `seed` and `budget` are as on the command line; `known` is the ledger: clause ids, with reasons.
    `contract` is the version of the contract, the latest if it is None; clauses of later versions are skipped.
    """

    target: ClassVar[Any]
    quick: ClassVar[bool] = False
    seed: ClassVar[int | None] = None
    budget: ClassVar[float | None] = None
    known: ClassVar[dict[str, str]] = {}
    contract: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        changed = sorted(vars(cls).keys() & {*_TESTS, "test_the_ledger_is_true"})
        if changed:
            example = _TESTS[changed[0]].id if changed[0] in _TESTS else "order"
            raise TypeError(
                f"{cls.__name__} overrides {', '.join(changed)}: a contract is kept as a whole. What is known to fail "
                f'goes to the ledger: known = {{"{example}": "why"}}'
            )
        super().__init_subclass__()

    @pytest.fixture(scope="class")
    @classmethod
    def memory_contract(cls) -> Iterator[Contract]:
        """One run for the class."""
        known = dict(cls.known)
        contract = Contract(
            _target(cls), quick=cls.quick, seed=cls.seed, budget=cls.budget, known=known, version=cls.contract
        )
        yield contract
        contract.close()

    def test_the_ledger_is_true(self, memory_contract: Contract) -> None:
        """Comes last: an entry that passes, or is about no clause, must go."""
        memory_contract.judge_ledger()


def _target(cls: type[MemoryContract]) -> Target:
    given = inspect.getattr_static(cls, "target", None)
    if given is None:
        raise pytest.UsageError(f"{cls.__name__} has no target: a store URL, package.module:factory, or a factory")
    if isinstance(given, staticmethod):
        given = given.__func__
    return parse(given) if isinstance(given, str) else of_factory(given)


def _test(clause: Clause) -> Callable[..., None]:
    def test(self: MemoryContract, memory_contract: Contract) -> None:  # noqa: ARG001 - a method of the class
        memory_contract.judge(Chosen(clause))

    test.__name__ = test.__qualname__ = f"test_{clause.id.replace('-', '_')}"
    test.__doc__ = clause.promise
    return pytest.mark.__getattr__(MARK)(test)


_TESTS = {f"test_{clause.id.replace('-', '_')}": clause for clause in CLAUSES}


def _fill() -> None:
    ledger = MemoryContract.test_the_ledger_is_true
    del MemoryContract.test_the_ledger_is_true
    for name, clause in _TESTS.items():
        setattr(MemoryContract, name, _test(clause))
    MemoryContract.test_the_ledger_is_true = ledger  # type: ignore[method-assign]  # pytest takes them in their order


_fill()
