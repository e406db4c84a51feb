"""The report on a terminal and in a log: what a person needs to act, in 80 columns, whatever text is in it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from everturn.testing.report import Progress, terminal
from everturn.testing.results import ClauseResult, RunReport, Violation
from tests.kit.report_tools import clause, everything, report, violations

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def printed(of: RunReport, *, tty: bool = False, width: int = 80) -> str:
    out = io.StringIO()
    terminal(of, Console(file=out, width=width, force_terminal=tty, highlight=False, markup=False, emoji=False))
    return out.getvalue()


def test_a_failure_tells_the_promise_what_happened_the_incident_the_remedy_and_how_to_replay() -> None:
    text = printed(report(clause("broken", 1, violations()["lost"], detail="1 of 240 turns")))
    assert text.splitlines()[7:] == [
        "broken: sequential.broken-1",
        "  promise   What is promised.",
        "  happened  1 of 240 turns",
        "            lost: a, b: acknowledged, and a later read does not have it. No read",
        "            ever had it.",
        "            0.000 ms w  append a, b: ok after 0.000 ms",
        "            0.000 ms r  read: saw nothing",
        "  incident  What it would have caused.",
        "  remedy    What to change.",
        "  replay    everturn check x",
        "",
        "1 clause offered: 1 broken.",
    ]


def test_one_cause_is_told_once_with_all_the_clauses_that_it_breaks() -> None:
    raised = [Violation("raised", f"read('s{n}') raised TypeError: not {n}") for n in range(3)]
    text = printed(report(*(clause("broken", n, raised[n]) for n in range(3))))
    assert text.count("raised TypeError") == 1
    assert "2 more, of one cause: sequential.broken-1, sequential.broken-2" in " ".join(text.split())


def test_turns_that_are_lost_in_the_same_way_are_one_cause() -> None:
    lost, torn = violations()["lost"], violations()["torn"]
    text = printed(report(clause("broken", 1, lost), clause("broken", 2, torn), clause("broken", 3, lost)))
    assert "1 more, of one cause: sequential.broken-3" in " ".join(text.split())


def test_a_story_of_its_own_is_told_for_each_clause() -> None:
    stories = [Violation("lost", f"t{n} was acknowledged and is not there") for n in range(2)]
    assert printed(report(*(clause("broken", n, stories[n]) for n in range(2)))).count("acknowledged") == 2


def test_it_says_what_would_let_more_be_tested() -> None:
    text = printed(report(clause("not_offered", detail="not offered: needs `undo(session_id)`; and `trim`")))
    assert "1  `undo(session_id)` (sequential.not_offered-1)" in text
    assert "1  `trim`" in text


def test_it_asks_nobody_for_another_shape_and_for_no_more_than_can_be_read() -> None:
    needs = "; and ".join(["the shape of a LangGraph BaseStore", *(f"`method_{number}`" for number in range(15))])
    text = printed(report(clause("not_offered", detail=f"not offered: needs {needs}")))
    assert "BaseStore" not in text
    assert text.count("`method_") == 12
    assert "... and 3 needs more" in text


def test_there_is_a_table_by_layer() -> None:
    text = printed(report(clause("holds", 1), clause("holds", 2), clause("untested", 3)))
    assert re.search(r"layer +\| untested \| holds \| seconds", text)
    assert re.search(r"sequential \| +1 \| +2 \|", text)


def test_when_all_is_well_one_line_says_so() -> None:
    assert printed(report(clause("holds", 1), clause("holds", 2))).endswith("2 clauses offered, all hold.\n")
    assert printed(report(clause("holds"), clause("known"))).endswith(
        "2 clauses offered, all hold but 1 known not to.\n"
    )
    assert printed(report(clause("not_offered"))).endswith("Nothing was offered.\n")


@pytest.mark.parametrize("tty", [False, True])
def test_it_fits_into_80_columns(tty: bool) -> None:
    for line in COLOURS.sub("", printed(everything(), tty=tty)).splitlines():
        assert cell_len(line) <= 80, line


def test_a_log_is_plain_also_when_it_is_wide() -> None:
    text = printed(everything(), width=10_000)
    assert "\x1b" not in text
    assert max(map(cell_len, text.splitlines())) <= 80
    assert not re.search(r"[ \t]+$", text, re.MULTILINE)


@pytest.mark.parametrize("tty", [False, True])
def test_hostile_text_is_shown_and_not_obeyed(tty: bool) -> None:
    text = COLOURS.sub("", printed(everything(), tty=tty))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert "U+001B" in text


def test_only_the_first_stories_of_a_clause_are_told_here() -> None:
    text = printed(report(clause("broken", 1, *violations().values())))
    assert "... and 6 more; --html and --json have them" in text


# --- while it runs -------------------------------------------------------------------------------------------------


def watched(*, tty: bool) -> str:
    last = msgspec.structs.replace(clause("holds"), id="crash.last", layer="crash")
    return followed([*everything().clauses, last], tty=tty)


def followed(clauses: Sequence[ClauseResult], ended: Iterable[int] | None = None, *, tty: bool = False) -> str:
    """Show the progress of clauses that end in the order of these numbers."""
    out = io.StringIO()
    with Progress(Console(file=out, force_terminal=tty, width=80), [one.id for one in clauses]) as progress:
        for number in range(len(clauses)) if ended is None else ended:
            progress.begin(clauses[number].id)
            progress.end(clauses[number])
    return out.getvalue()


def test_in_a_log_each_layer_is_a_line_of_letters() -> None:
    assert watched(tty=False) == "sequential   BBuk.-\ncrash        .\n"


@pytest.mark.parametrize("ended", [(6, 0, 5, 1, 4, 2, 3), (6, 5, 4, 3, 2, 1, 0)])
def test_clauses_that_end_before_their_turn_wait_for_it(ended: tuple[int, ...]) -> None:
    last = msgspec.structs.replace(clause("holds"), id="crash.last", layer="crash")
    assert followed([*everything().clauses, last], ended) == "sequential   BBuk.-\ncrash        .\n"


def test_what_ended_in_a_run_that_was_stopped_is_seen() -> None:
    assert followed(everything().clauses, (0, 5, 3)) == "sequential   Bk-\n"


def test_a_clause_that_runs_twice_is_seen_twice() -> None:
    twice = [clause("broken"), clause("holds"), clause("broken")]
    assert followed(twice, (2, 1, 0)) == "sequential   B.B\n"


def test_on_a_terminal_failures_show_at_once_and_the_bar_goes_away() -> None:
    text = COLOURS.sub("", watched(tty=True))
    assert "broken: sequential.broken-1" in text
    assert "untested: sequential.untested-1" in text
    assert text.endswith("\x1b[2K")  # the line of the bar, erased


def test_a_run_that_is_interrupted_leaves_the_terminal_as_it_was() -> None:
    out = io.StringIO()

    def interrupted() -> None:
        with Progress(Console(file=out, force_terminal=True), ["a", "b", "c"]) as progress:
            progress.begin("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().rindex("\x1b[?25l")  # the cursor shows again
