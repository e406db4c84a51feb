"""The plain install, with no extra: every clause of the contract that is offered holds on the default store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import deep

EXTRAS = ("numpy", "redis", "hiredis", "psycopg", "psycopg_pool", "starlette", "uvicorn", "fakeredis")


@pytest.mark.parametrize(
    "layers", ["sequential,persistence", deep("sequential,concurrency,persistence,edge,faults,crash")]
)
def test_the_default_store_passes_its_own_contract_without_any_extra(tmp_path: Path, layers: str) -> None:
    blocked = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in EXTRAS)
    (tmp_path / "sitecustomize.py").write_text(blocked)  # in every process of the run: an import of these fails
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    report = tmp_path / "report.json"
    words = ["-m", "everturn.cli", "check", "sqlite:///memory.db", "--quick", "--layers", layers, "--json", str(report)]
    ran = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    statuses = {clause["id"]: clause["status"] for clause in json.loads(report.read_text())["clauses"]}
    assert statuses["rollback-takes-everything"] == "holds"  # it searches summaries
    assert set(statuses.values()) <= {"holds", "not_offered"}
