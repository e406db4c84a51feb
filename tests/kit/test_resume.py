"""The layer `resume`: a sound store holds it, a lock without a fence is judged as a lock, a lease must run out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from everturn.testing.contract import CLAUSES
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.runner import QUICK_SECONDS, Chosen, Runner, run_all
from everturn.testing.kit.target import parse
from everturn.testing.races import lost_leases
from everturn.testing.workers.messages import Modules
from tests.kit.sound.core import Receipt
from tests.kit.sound.resume import Lease, ResumingCore, ResumingLists
from tests.tiers import first

LAYER = [Chosen(clause) for clause in CLAUSES if clause.layer == "resume"]


def statuses(target: str, *clauses: str, seed: int = 1) -> dict[str, str]:
    chosen = [one for one in LAYER if not clauses or one.clause.id in clauses]
    with Environment(parse(target), seed=seed, quick=True) as run:
        report = run_all(Runner(run, chosen, budget=QUICK_SECONDS), chosen)
    return {result.id: result.status for result in report.clauses}


@pytest.mark.parametrize("seed", first(1, range(5)))
def test_a_sound_store_holds_the_layer(seed: int) -> None:
    assert statuses("tests.kit.sound.resume:lists", seed=seed) == {one.clause.id: "holds" for one in LAYER}


class Locked(ResumingLists):
    def add_messages(self, session_id: str, messages: Sequence[Any]) -> Receipt:  # type: ignore[override]
        return super().add_messages(session_id, messages)


def locked(where: Path) -> Locked:
    return Locked(ResumingCore(where))


def test_a_lock_without_a_fence_is_judged_as_a_lock() -> None:
    found = statuses(f"{__name__}:locked", "lease-release", "lease-sleeper", "lease-fence")
    assert found == {"lease-release": "holds", "lease-sleeper": "not_offered", "lease-fence": "not_offered"}


class ForEver(ResumingCore):
    def lease(self, session: str, seconds: float) -> Lease:
        return super().lease(session, 1e6)


def for_ever(where: Path) -> ResumingLists:
    return ResumingLists(ForEver(where))


def test_a_lease_that_does_not_run_out_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_leases, "PATIENCE", 2 * lost_leases.SHORT)
    assert statuses(f"{__name__}:for_ever", "lease") == {"lease": "broken"}


def test_a_worker_that_is_asleep_does_its_job_when_it_wakes_up() -> None:
    with Environment(parse("tests.kit.sound.resume:lists"), seed=1, quick=True) as run:
        worker = run.fork_server.worker()
        with worker.asleep():
            worker.send(Modules())
            assert not worker.poll(0.05)
        worker.report(30.0)
        run.fork_server.rest(worker)
