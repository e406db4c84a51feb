"""Calls that hang or are refused: each costs its clause a few seconds, is told once, and passes nothing."""

from __future__ import annotations

import pytest

from everturn.testing.contract import CLAUSES
from everturn.testing.kit import call_limits
from everturn.testing.kit.answers import Answers
from everturn.testing.kit.call_limits import LATER, LONGEST_CALL, NEXT_LONGEST, CallLimits
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.runner import Runner
from everturn.testing.kit.selection import chosen
from everturn.testing.kit.target import parse
from everturn.testing.workers.messages import CallerSteps, Close, Do, Done, Fault, Job, Outcome, Step
from tests.kit.running import report


def job(*ops: str) -> Job:
    return Do("slot", (CallerSteps("A", tuple(Step(op, "s") for op in ops)),))


def test_an_operation_that_hung_is_waited_for_less_and_others_are_not() -> None:
    run = CallLimits()
    assert run.seconds(job("trim")) == pytest.approx(LONGEST_CALL, abs=0.3)
    run.saw_hang(job("trim"), "trim", 10.0, "line 1")
    assert run.seconds(job("trim")) == pytest.approx(NEXT_LONGEST, abs=0.3)
    run.saw_hang(job("trim"), "append-trim", 3.0, "line 1")
    assert run.seconds(job("trim")) == pytest.approx(LATER, abs=0.3)
    assert run.seconds(job("append")) == pytest.approx(LONGEST_CALL, abs=0.3)
    assert run.seconds(Close("slot")) == pytest.approx(LONGEST_CALL, abs=0.3)


def test_a_job_of_many_steps_and_a_store_that_is_slow_to_open_get_more_time() -> None:
    run = CallLimits()
    assert run.seconds(job(*["append"] * 1000)) > 5 * LONGEST_CALL
    run.usual = 2.0
    assert run.seconds(job("append")) > 2 * LONGEST_CALL


def test_an_operation_that_hung_is_waited_for_as_long_as_others_of_it_take() -> None:
    run = CallLimits()
    run.saw_answer(job("append", "append"), 8.0)
    run.saw_hang(job("append"), "order", 15.0, "line 1")
    run.saw_hang(job("append"), "isolation", 3.0, "line 1")
    assert run.seconds(job("append")) == pytest.approx(12.0, abs=0.3)
    run.saw_answer(job("append"), 14.0)
    assert run.seconds(job("append")) == pytest.approx(LONGEST_CALL, abs=0.3)


def test_where_a_call_hangs_is_told_once() -> None:
    run = CallLimits()
    assert run.saw_hang(job("trim"), "trim", 10.0, "line 1") == "trim had not returned after 10.0 s: it is at line 1"
    assert "line 1" not in run.saw_hang(job("trim"), "append-trim", 3.0, "line 1")
    assert run.lost == 13.0


def test_a_call_that_the_end_of_the_run_cut_off_did_not_hang() -> None:
    run = CallLimits()
    assert run.saw_hang(job("read"), "order", 0.05, "line 1") == "the time of the run was over while read was under way"
    assert run.lost == 0
    assert run.seconds(job("read")) == pytest.approx(LONGEST_CALL, abs=0.3)


def test_a_hanging_operation_is_untested_in_each_clause_and_told_in_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_limits, "LONGEST_CALL", 2.0)
    monkeypatch.setattr(call_limits, "NEXT_LONGEST", 2.0)
    whole = report("kit.stores:clear_hangs", "clear", "clear-absent", "order")
    assert [clause.status for clause in whole.clauses] == ["untested", "untested", "holds"]
    assert "it is at" in whole.clauses[0].detail
    assert "as in clear" in whole.clauses[1].detail


def test_the_time_that_hanging_calls_took_is_given_back_to_the_other_clauses() -> None:
    (order,) = chosen(CLAUSES, ["order"])
    with Environment(parse("tests.kit.sound.memory:threads"), seed=1, quick=False) as run:
        runner = Runner(run, [order], budget=100.0)
        runner._started -= 150
        assert "the budget of 100 s was used up" in runner.result(order).detail
        run.patience.lost = 90.0
        assert runner.result(order).status == "holds"
        runner._started -= 100
        run.patience.lost = 1000.0  # the budget is given once more, not ten times
        assert runner.result(order).status == "untested"


def test_a_run_that_was_given_no_budget_does_the_least_of_every_clause_on_a_busy_machine() -> None:
    (order,) = chosen(CLAUSES, ["order"])
    with Environment(parse("tests.kit.sound.memory:threads"), seed=1, quick=False) as run:
        runner = Runner(run, [order], budget=100.0, may_overrun=True)
        runner._started -= 150
        runner._ends -= 150
        assert runner.result(order).status == "holds"
        runner._hard_end -= 300
        assert "the budget of 100 s was used up" in runner.result(order).detail


def test_an_operation_that_is_refused_every_time_is_named() -> None:
    answers = Answers()
    fault = Fault("ValueError", "no", not_written=True)
    answers.count(job("append", "trim", "trim"), Done(((Outcome(1), Outcome(None, fault), Outcome(None, fault)),)))
    assert answers.never_given(["append", "read"]) == ""
    assert answers.never_given(["append", "trim"]).startswith("all of 2 calls of trim raised")
    answers.count(job("trim"), Done(((Outcome(),),)))
    assert answers.never_given(["trim"]) == ""


def test_a_clause_whose_operation_is_always_refused_is_not_passed() -> None:
    whole = report("kit.stores:refuses_trim", "trim-to-nothing", "order")
    assert [clause.status for clause in whole.clauses] == ["broken", "holds"]
