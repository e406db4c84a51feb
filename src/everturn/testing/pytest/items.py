"""Clauses as pytest items: `--memory-target TARGET` adds one item per clause to the collected tests.

The status of a clause becomes pytest's: passed, failed, skipped or xfailed.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from everturn.testing.kit.runner import Chosen, Runner
    from everturn.testing.kit.target import Target
    from everturn.testing.results import ClauseResult

MARK = "memory_contract"
_SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--memory-target", {"metavar": "TARGET", "help": "run the contract on a store URL or package.module:factory"}),
    (
        "--memory-quick",
        {"action": "store_true", "help": "the least of every clause: about 10 seconds, on a server more"},
    ),
    ("--memory-budget", {"type": float, "metavar": "SECONDS", "help": "what the contract may take; 60 is usual"}),
    ("--memory-seed", {"type": int, "help": "fixes inputs, plan, pause and kill points of the contract"}),
    ("--memory-ledger", {"metavar": "FILE", "help": "failures of the contract that are known, with reasons"}),
    ("--memory-contract", {"metavar": "VERSION", "help": "the version of the contract; the latest is usual"}),
    ("--memory-use-server", {"action": "store_true", "help": "use the server in the URL, in a namespace of its own"}),
)


def add_options(group: pytest.OptionGroup) -> None:
    for name, settings in _SETTINGS:
        group.addoption(name, **settings)


def register(config: pytest.Config) -> None:
    """Register the hooks, if a target was given. Raises UsageError for a bad target."""
    config.addinivalue_line("markers", f"{MARK}: a clause of the memory contract (see --memory-target)")
    text = config.getoption("--memory-target")
    if text is None:
        return
    from everturn.testing.kit.selection import BadChoice, of_version, read_ledger
    from everturn.testing.kit.target import TargetError, parse

    try:
        target = parse(text, use_server=bool(config.getoption("--memory-use-server")))
        ledger = config.getoption("--memory-ledger")
        known = read_ledger(Path(ledger)) if ledger else {}
        of_version(version := config.getoption("--memory-contract"))
    except (BadChoice, OSError, TargetError) as exc:
        raise pytest.UsageError(f"--memory-target: {exc}") from exc
    quick, seed = bool(config.getoption("--memory-quick")), config.getoption("--memory-seed")
    budget = config.getoption("--memory-budget")
    contract = Contract(target, quick=quick, seed=seed, budget=budget, known=known, version=version)
    config.pluginmanager.register(ContractHooks(contract), "everturn-memory-contract")


class Contract:
    """One run of the contract. Begins with its first clause, and ends with the pytest session or class."""

    def __init__(
        self,
        target: Target,
        *,
        quick: bool = False,
        seed: int | None = None,
        budget: float | None = None,
        known: dict[str, str] | None = None,
        histories: Path | None = None,
        version: str | None = None,
    ) -> None:
        """`version` is that of the contract; None: the latest. Raises BadChoice if there is no such version."""
        from everturn.testing.kit.runner import DEFAULT_SECONDS, QUICK_SECONDS, Chosen
        from everturn.testing.kit.selection import of_version
        from everturn.testing.results import CONTRACT_VERSION

        self.target = target
        self.version = CONTRACT_VERSION if version is None else version
        self.clauses = [Chosen(clause) for clause in of_version(version)]
        self.known = known or {}
        self.histories = histories
        self._quick = quick
        self._seed = secrets.randbelow(10**6) if seed is None else seed
        self._may_overrun = budget is None
        self._budget = budget if budget is not None else QUICK_SECONDS if quick else DEFAULT_SECONDS
        self._runner: Runner | None = None
        self._refused: str | None = None

    def judge(self, chosen: Chosen) -> None:
        """Run one clause, and end its test as the status says. A clause of a later version is skipped."""
        if chosen.clause.since > int(self.version):
            pytest.skip(f"came with contract {chosen.clause.since}, and this run is of contract {self.version}")
        end_test(self._begun().result(chosen))

    def judge_ledger(self) -> None:
        """Fail if the ledger names a clause that ran and did not fail."""
        if self._runner is not None and (complaints := self._runner.report().complaints):
            pytest.fail("\n".join(complaints), pytrace=False)

    def _begun(self) -> Runner:
        from everturn.testing.kit.environment import Environment
        from everturn.testing.kit.runner import Runner
        from everturn.testing.kit.target import TargetError
        from everturn.testing.servers import ServerError

        if self._refused is not None:
            pytest.skip(self._refused)  # said once is enough; the run has failed
        if self._runner is None:
            try:
                environment = Environment(self.target, seed=self._seed, quick=self._quick)
            except (ServerError, TargetError) as exc:
                self._refused = f"the contract cannot be run: {exc}"
                pytest.fail(self._refused, pytrace=False)
            self._runner = Runner(
                environment,
                self.clauses,
                budget=self._budget,
                known=self.known,
                histories=self.histories,
                contract=self.version,
                may_overrun=self._may_overrun,
            )
        return self._runner

    def close(self) -> None:
        if self._runner is not None:
            self._runner.environment.close()
            self._runner = None


def end_test(result: ClauseResult) -> None:
    """End a test as the clause's status says."""
    if result.status == "not_offered":
        pytest.skip(f"not offered: {result.detail.removeprefix('not offered: ')}")
    if result.status == "known":
        pytest.xfail(result.detail)
    if result.status in {"broken", "untested"}:
        pytest.fail(describe_failure(result), pytrace=False)


def describe_failure(result: ClauseResult) -> str:
    """Describe a broken clause for the pytest report."""
    lines = [f"{result.id}: {result.promise}"]
    lines.append(f"{result.status}: {result.detail}" if result.detail else result.status)
    lines += ["", *(violation.story for violation in result.violations[:3])] if result.violations else []
    if len(result.violations) > 3:
        lines.append(f"... and {len(result.violations) - 3} more")
    lines += ["", f"incident: {result.incident}"]
    lines += [f"remedy:   {result.remedy}"] if result.remedy else []
    return "\n".join([*lines, f"replay:   {result.replay}"])


class ContractHooks:
    """The hooks of a run that names a target."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract

    @pytest.hookimpl(tryfirst=True)  # before -k and -m choose
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        if self._contract.histories is None:
            cache = getattr(session.config, "cache", None)
            self._contract.histories = Path(cache.mkdir("everturn")) if cache is not None else None
        parent = ContractNode.from_parent(session, name=f"memory[{self._contract.target.text}]")
        ours: list[pytest.Item] = [
            ClauseItem.from_parent(parent, chosen=one, contract=self._contract) for one in self._contract.clauses
        ]
        if self._contract.known:
            ours.append(LedgerItem.from_parent(parent, name="ledger", contract=self._contract))
        session.config.hook.pytest_collectreport(report=pytest.CollectReport(parent.nodeid, "passed", None, [*ours]))
        items += ours

    def pytest_sessionfinish(self) -> None:
        self._contract.close()


class ContractNode(pytest.Collector):
    """The collector above the items of a target."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, nodeid=options["name"])

    def collect(self) -> list[pytest.Item]:
        return []


class ClauseItem(pytest.Item):
    """One clause."""

    def __init__(self, *, chosen: Chosen, contract: Contract, **options: Any) -> None:
        super().__init__(name=chosen.clause.id, **options)
        self._chosen = chosen
        self._contract = contract
        self.add_marker(getattr(pytest.mark, MARK))

    def runtest(self) -> None:
        self._contract.judge(self._chosen)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.parent.name if self.parent else ''}::{self.name}"


class LedgerItem(pytest.Item):
    """A test of the ledger of known failures."""

    def __init__(self, *, contract: Contract, **options: Any) -> None:
        super().__init__(**options)
        self._contract = contract
        self.add_marker(getattr(pytest.mark, MARK))

    def runtest(self) -> None:
        self._contract.judge_ledger()

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.parent.name if self.parent else ''}::{self.name}"
