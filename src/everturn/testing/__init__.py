"""Tools to test a memory store: a contract to run on any store, golden files, servers, faults.

Public (docs/public.md is the list; each has an `__all__`):

MemoryContract  the contract as a class of tests
golden/         the fixture `snapshot_db`: SQLite files compared with golden artifacts
history/        records calls of many processes, and judges them
report/         reports of a run, read and written
results.py      the values that a report is made of
servers/        real servers for tests: Valkey, cluster, sentinel, PostgreSQL

Internal:

contract/       the clauses: promises, incidents, tests
kit/            runs clauses on a target
workers/        processes in which the target's code runs
shapes/         how stores of each framework are called
races/          calls stopped at a point while others complete
faults/         disks, network and files that fail
pytest/         the contract as pytest items
plugin.py       the pytest plugin
"""

from __future__ import annotations

TYPE_CHECKING = bool(0)  # not False: see everturn/__init__.py
if TYPE_CHECKING:
    from everturn.testing.pytest.memory_contract import MemoryContract

__all__ = ["MemoryContract"]


def __getattr__(name: str) -> object:
    # Imports pytest, which need not be installed for a server or a proxy.
    if name == "MemoryContract":
        from everturn.testing.pytest.memory_contract import MemoryContract

        return MemoryContract
    raise AttributeError(f"module 'everturn.testing' has no attribute {name!r}")
