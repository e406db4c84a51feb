"""Stories of violations: plain words, the fewest calls that show it, and the report of a file."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from everturn.testing.history import BadHistory, judge, judge_file, save
from everturn.testing.results import Event
from tests.kit.history_tools import Plan, call, history, simulate

MS = 1_000_000


def story(*calls: list[Event]) -> str:
    (violation,) = judge(history(*calls)).violations
    return violation.story


def test_a_story_says_who_wrote_what_when_and_what_readers_saw() -> None:
    told = story(
        call("writer", "append", (1 * MS, 3 * MS), "question answer"),
        call("reader", "read", (4 * MS, 5 * MS), ""),
    )
    assert told.splitlines() == [
        "question, answer: acknowledged, and a later read does not have it. No read ever had it.",
        "      0.000 ms writer  append question, answer: ok after 2.000 ms",
        "      3.000 ms reader  read: saw nothing",
    ]


def test_the_culprit_stands_beside_the_turn_that_was_lost() -> None:
    (violation,) = judge(
        history(
            call("w", "append", (1, 2), "first"),
            call("a", "append", (10, 20), "mine"),
            call("b", "append", (12, 14), "yours"),
            call("r", "read", (30, 31), "first mine"),
        )
    ).violations
    assert (violation.kind, violation.values) == ("lost", ("yours",))
    assert [event.worker for event in violation.events if event.type == "invoke"] == ["a", "b", "r"]
    assert judge(violation.events).counts == {"lost": 1}


def test_the_culprit_is_the_one_change_that_came_after_it() -> None:
    calls = [
        call("a", "append", (1, 2), "mine"),
        call("b", "append", (3, 4), "yours"),
        call("r", "read", (5, 6), "yours"),
    ]
    (violation,) = judge(history(*calls)).violations
    assert [event.worker for event in violation.events if event.type == "invoke"] == ["a", "b", "r"]


def test_a_story_leaves_out_what_has_no_part_in_it() -> None:
    crowd = [call(f"w{number}", "append", (number * 10, number * 10 + 5), f"m{number}") for number in range(1, 100)]
    seen = " ".join(f"m{number}" for number in range(1, 100) if number != 50)
    crowd += [call("early", "read", (511, 513), " ".join(f"m{number}" for number in range(1, 52)))]
    (violation,) = judge(history(*crowd, call("late", "read", (2000, 2001), seen))).violations
    assert {event.worker for event in violation.events} == {"w50", "early", "late"}
    assert "late   read: saw 98 messages, without m50" in violation.story
    assert "early  read: saw 51 messages, with m50 as number 50" in violation.story
    assert violation.values == ("m50",)
    assert violation.shown_by is not None
    assert violation.events[violation.shown_by].worker == "late"


def test_reads_in_the_events_have_only_the_ids_the_story_is_about() -> None:
    (violation,) = judge(
        history(
            call("w", "append", (1, 2), "a"),
            call("w", "append", (3, 4), "b"),
            call("w", "append", (5, 6), "c"),
            call("r", "read", (7, 8), "a c b"),
        )
    ).violations
    assert violation.kind == "misordered"
    assert violation.events[-1].values == ("c", "b")


def test_what_could_excuse_it_stays_in_the_story() -> None:
    told = story(
        call("w", "append", (1, 2), "a"),
        call("t", "trim", (3, 9), limit=5),
        call("w", "append", (4, 5), "b"),
        call("r", "read", (10, 11), "a"),
    )
    assert "No order of the trim beside it explains that." in told
    assert "t  trim to 5: ok" in told


def test_calls_that_could_not_have_brought_it_back_go_from_the_story() -> None:
    clears = [call("c", "clear", (10 * number, 10 * number + 5)) for number in range(1, 6)]
    (violation,) = judge(
        history(call("w", "append", (1, 2), "a"), *clears, call("r", "read", (90, 91), "a"))
    ).violations
    assert violation.kind == "resurrected"
    assert [event.f for event in violation.events if event.type == "invoke"] == ["append", "clear", "read"]


def test_what_was_not_yet_acknowledged_is_not_said_to_have_been() -> None:
    """Other reads say that it was there: it stands before what this read has."""
    verdict = judge(
        history(
            call("w1", "append", (1, 20), "early"),
            call("w2", "append", (2, 8), "late"),
            call("r", "read", (9, 10), "late"),
            call("r", "read", (21, 22), "early late"),
            call("w2", "clear", (23, 24)),
            call("r", "read", (25, 26)),
        )
    )
    told = [violation.story.splitlines()[0] for violation in verdict.violations if violation.kind == "stale"]
    assert told == ["early: a read does not have it, a later one does, and no order of the calls explains that."]


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([call("w", "append", (1, None), "a b"), call("r", "read", (3, 4), "a")], "never heard of again"),
        ([call("w", "append", (1, 2), "a", end="fail"), call("r", "read", (3, 4), "a")], "that it was not written"),
        (
            [
                call("w", "append", (1, 2), "a", end="info", key="k"),
                call("w", "append", (3, 4), "a", key="k"),
                call("r", "read", (5, 6), "a a"),
            ],
            "may have happened or not",
        ),
        ([call("r", "read", (3, 4), "x" * 1000)], "x" * 37 + "..."),
        ([call("w", "append", (1, 2), " ".join(map(str, range(99)))), call("r", "read", (3, 4))], "(99 messages)"),
    ],
    ids=["killed", "refused", "raised", "long", "many"],
)
def test_every_end_has_its_words(calls: list[list[Event]], words: str) -> None:
    assert words in story(*calls)


def test_the_same_history_gets_the_same_verdict_in_any_order_of_its_files() -> None:
    plan = Plan(
        workers=5, calls=60, weights={"append": 6, "read": 3, "clear": 1, "trim": 1, "snapshot": 1, "rollback": 1}
    )
    for seed in range(5):
        events = simulate(plan, seed)
        events += call("late", "read", (10_000, 10_001), "m1.0 m2.0 nobody")
        by_worker = sorted(events, key=lambda event: event.worker)
        assert judge(events) == judge(by_worker) == judge(events)


# --- the cost ----------------------------------------------------------------------------------------------------


def steps(events: list[Event]) -> int:
    """Count the functions that the judge calls, ours and Python's: a cost that other processes cannot change."""
    count = 0

    def step(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(step)
    try:
        verdict = judge(events)
    finally:
        sys.setprofile(None)
    assert verdict.counts == {}
    return count


@pytest.mark.parametrize(
    "weights",
    [
        {"append": 200, "read": 1},
        {"append": 60, "read": 10, "clear": 3},
        {"append": 60, "read": 20, "clear": 4, "trim": 1},
    ],
    ids=["appends", "clears", "trims"],
)
def test_twice_the_calls_cost_about_twice_as_much(weights: dict[str, int]) -> None:
    small, large = (steps(simulate(Plan(workers=4, calls=calls, weights=weights), 7)) for calls in (1500, 3000))
    assert large < 3 * small


# --- files -------------------------------------------------------------------------------------------------------


def test_a_file_is_judged_into_a_report(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    save(simulate(Plan(calls=100), 1), path)
    report = judge_file(path)
    assert {clause.status for clause in report.clauses} == {"holds"}
    assert report.exit_code == 0
    assert report.counts["holds"] == len(report.clauses) == 8
    assert report.target == str(path)


def test_a_broken_file_names_the_promise_the_incident_and_how_to_look_again(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    events = simulate(Plan(calls=100), 1)
    save([*events, *call("late", "read", (10**9, 10**9 + 1), "")], path)
    report = judge_file(path)
    (lost,) = [clause for clause in report.clauses if clause.status == "broken"]
    assert lost.id == "history.lost"
    assert lost.promise
    assert lost.incident
    assert lost.replay == f"everturn check --judge {path}"
    assert report.exit_code == 1
    assert len(lost.violations) == 10 < int(lost.detail.split()[0])


def test_a_file_in_which_little_happened_is_untested_not_fine(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    save(history(call("w", "append", (1, 2), "a"), call("r", "read", (3, 4), "a")), path)
    report = judge_file(path)
    assert {clause.status for clause in report.clauses} == {"untested"}
    assert report.exit_code == 1
    save(history(*(call("w", "append", (2 * n, 2 * n + 1), f"m{n}") for n in range(100))), path)
    assert {clause.status for clause in judge_file(path).clauses} == {"untested"}  # nobody read


def test_a_file_that_is_no_history_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        judge_file(tmp_path / "missing.jsonl")
    path = tmp_path / "history.jsonl"
    path.write_text("[]\n")
    with pytest.raises(BadHistory, match="no event"):
        judge_file(path)
