"""The fault drill: log and metrics alone say which fault happened, in which order, and that nothing was lost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Line(NamedTuple):
    """A line of the log, as a person reads it."""

    level: str
    backend: str
    event: str
    fields: dict[str, str]


LINE = re.compile(r"^(\w+) everturn\.(\w+) (\w+): [^\[]*\[(.*)\]$")
FIELD = re.compile(r"(\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\S+)")


def lines(log: str) -> Iterator[Line]:
    for line in log.splitlines():
        found = LINE.match(line)
        assert found, line
        yield Line(*found.group(1, 2, 3), dict(FIELD.findall(found[4])))


class Drill(NamedTuple):
    log: list[Line]
    points: list[Any]
    acknowledged: int

    def sum(self, name: str, **labels: str) -> float:
        wanted = {key.replace("_", "."): value for key, value in labels.items()}
        return sum(value for metric, found, value in self.points if metric == name and wanted.items() <= found.items())


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Drill:
    folder = tmp_path_factory.mktemp("drill")
    command = [sys.executable, "-m", "tests.integration.fault_drill", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=180)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    return Drill(list(lines((folder / "store.log").read_text("utf-8"))), told["points"], told["acknowledged"])


def test_the_log_tells_which_fault_happened_and_in_which_order(drill: Drill) -> None:
    story = [f"{line.backend} {line.event}" for line in drill.log if line.event not in ("opened", "hostile_setting")]
    told = list(dict.fromkeys(story))
    assert told[:4] == ["redis connection_lost", "redis retried", "redis reconnected", "redis recovered"]
    assert told[4:6] == ["redis failed", "redis replayed"] or told[4:5] == ["redis failed"]
    assert told[-4:] == ["sqlite failed", "sqlite lease_lost", "sqlite effect_in_doubt", "sqlite corrupt_entry"]


def test_each_fault_is_named_by_the_fields_of_its_line(drill: Drill) -> None:
    failed = [line for line in drill.log if line.event == "failed"]
    gone, full = failed
    assert (gone.backend, gone.fields["operation"], gone.fields["session_id"]) == (
        "redis",
        "'add_messages'",
        "'customer-1'",
    )
    assert full.fields["outcome"] == "'not_written'"
    assert "full" in full.fields["reason"]
    (damage,) = (line for line in drill.log if line.event == "corrupt_entry")
    assert (damage.fields["session_id"], damage.fields["seq"], damage.level) == ("'customer-2'", "1", "ERROR")


def test_the_metrics_count_the_same_faults(drill: Drill) -> None:
    assert drill.sum("everturn.retries", db_system_name="redis") > 0
    assert drill.sum("everturn.connections.lost", db_system_name="redis") >= 2
    assert drill.sum("everturn.failures", db_system_name="redis") == 1
    assert drill.sum("everturn.failures", db_system_name="sqlite") == 1
    assert drill.sum("everturn.leases.lost", db_system_name="sqlite") == 1
    assert drill.sum("everturn.effects.in_doubt", db_system_name="sqlite") == 1
    assert drill.sum("everturn.corrupt_entries", db_system_name="sqlite") == 1


def test_every_acknowledged_turn_is_one_call_that_succeeded_and_nothing_was_lost(drill: Drill) -> None:
    """The drill itself reads every session at its end, and compares it with the acknowledged turns."""
    done = [
        value
        for name, labels, value in drill.points
        if name == "db.client.operation.duration"
        and (labels["db.operation.name"], labels["everturn.outcome"]) == ("add_messages", "ok")
    ]
    assert sum(done) == drill.acknowledged > 5
