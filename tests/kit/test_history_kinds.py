"""Histories by hand: each kind of violation in its smallest form, and beside it what is no violation."""

from __future__ import annotations

import pytest

from everturn.testing.history import judge
from everturn.testing.results import Event
from tests.kit.history_tools import call, history


def kinds(*calls: list[Event]) -> dict[str, int]:
    verdict = judge(history(*calls))
    assert verdict.undecided == ()
    return dict(verdict.counts)


def append(times: tuple[int, int | None], values: str, worker: str = "w", **fields: object) -> list[Event]:
    return call(worker, "append", times, values, **fields)


def read(times: tuple[int, int | None], values: str = "", worker: str = "r", **fields: object) -> list[Event]:
    return call(worker, "read", times, values, **fields)


def clear(times: tuple[int, int | None], **fields: object) -> list[Event]:
    return call("c", "clear", times, **fields)


def trim(times: tuple[int, int | None], limit: int | None = None, **fields: object) -> list[Event]:
    return call("t", "trim", times, limit=limit, **fields)


def snapshot(times: tuple[int, int | None], name: str = "S") -> list[Event]:
    return call("k", "snapshot", times, snapshot=name)


def rollback(times: tuple[int, int | None], name: str = "S", **fields: object) -> list[Event]:
    return call("b", "rollback", times, snapshot=name, **fields)


# --- in order --------------------------------------------------------------------------------------------------


def test_an_empty_history_shows_nothing() -> None:
    assert kinds() == {}


def test_what_was_written_is_read() -> None:
    assert kinds(append((1, 2), "a b"), read((3, 4), "a b"), append((5, 6), "c"), read((7, 8), "a b c")) == {}


def test_a_read_that_overlaps_an_append_may_have_it_or_not() -> None:
    assert kinds(append((1, 9), "a"), read((2, 3), ""), read((4, 5), "a")) == {}


def test_an_append_that_raised_or_whose_worker_died_may_be_there_or_not() -> None:
    for seen in ("a b c d", "a b", "c d", ""):
        assert kinds(append((1, 2), "a b", end="info"), append((3, None), "c d"), read((5, 6), seen)) == {}


def test_what_may_have_been_written_may_appear_late() -> None:
    assert kinds(append((1, 2), "a", end="info"), read((3, 4), ""), read((5, 6), "a")) == {}


def test_appends_that_overlap_have_either_order() -> None:
    for seen in ("a b", "b a"):
        assert kinds(append((1, 5), "a"), append((2, 6), "b", "v"), read((7, 8), seen)) == {}


def test_two_moments_that_are_the_same_overlap() -> None:
    assert kinds(append((1, 5), "a"), read((5, 6), "")) == {}


def test_sessions_do_not_mix() -> None:
    assert kinds(append((1, 2), "a", session="s"), append((3, 4), "b", session="t"), read((5, 6), "a")) == {}


# --- lost ------------------------------------------------------------------------------------------------------


def test_lost_never_seen() -> None:
    assert kinds(append((1, 2), "a"), read((3, 4), "")) == {"lost": 1}


def test_lost_overwritten_by_another_writer() -> None:
    assert kinds(append((1, 5), "a"), append((2, 6), "b", "v"), read((7, 8), "b")) == {"lost": 1}


def test_lost_seen_and_then_gone() -> None:
    assert kinds(append((1, 2), "a"), read((3, 4), "a"), read((5, 6), "")) == {"lost": 1}


def test_lost_although_the_read_began_earlier_for_it_has_what_came_later() -> None:
    assert kinds(append((2, 3), "a"), append((5, 6), "b"), read((1, 8), "b")) == {"lost": 1}


def test_every_lost_one_counts() -> None:
    appends = [append((number, number + 1), f"m{number}") for number in range(1, 200, 4)]
    verdict = judge(history(*appends, read((300, 301), "m1")))
    assert verdict.counts == {"lost": 49}
    assert len(verdict.violations) == 10
    assert verdict.acknowledged == 50


# --- stale -----------------------------------------------------------------------------------------------------


def test_stale_a_read_without_what_was_acknowledged_and_comes_later() -> None:
    assert kinds(append((1, 2), "a"), read((3, 4), ""), read((5, 6), "a")) == {"stale": 1}


def test_stale_a_reader_goes_back_in_time() -> None:
    assert kinds(append((1, 20), "a"), read((3, 4), "a"), read((5, 6), ""), read((7, 8), "a")) == {"stale": 1}


def test_stale_also_between_two_readers() -> None:
    reads = read((3, 4), "a", "p"), read((5, 6), "", "q"), read((7, 8), "a", "q")
    assert kinds(append((1, 20), "a"), *reads) == {"stale": 1}


# --- duplicate, phantom, torn ----------------------------------------------------------------------------------


def test_duplicate_one_call_two_copies() -> None:
    assert kinds(append((1, 2), "a b"), read((3, 4), "a b a b")) == {"duplicate": 1}


def test_duplicate_half_of_it() -> None:
    assert kinds(append((1, 2), "a b"), read((3, 4), "a b b")) == {"duplicate": 1}


def test_a_retry_with_the_same_key_is_the_same_unit() -> None:
    first, second = append((1, 2), "a", end="info", key="k"), append((3, 4), "a", key="k")
    assert kinds(first, second, read((5, 6), "a")) == {}
    assert kinds(first, second, read((5, 6), "a a")) == {"duplicate": 1}
    assert kinds(first, second, read((5, 6), "")) == {"lost": 1}
    assert kinds(first, append((3, 4), "a", end="info", key="k"), read((5, 6), "")) == {}


def test_a_retry_of_an_append_that_failed_takes_its_place_in_time_from_the_retry() -> None:
    calls = (
        snapshot((1, 2)),
        append((3, 4), "a"),
        append((5, 6), "b", end="fail", key="K"),
        append((7, 8), "c"),
        rollback((9, 10)),
        append((11, 12), "b", key="K"),
    )
    assert kinds(*calls, read((13, 14), "b")) == {}  # c went with the rollback
    assert kinds(*calls, append((15, 16), "d"), read((17, 18), "b")) == {"lost": 1}


def test_a_retry_may_write_again_after_a_rollback_that_dropped_it() -> None:
    first, second = append((3, 4), "a", key="k"), append((7, 8), "a", key="k")
    assert kinds(snapshot((1, 2)), first, rollback((5, 6)), second, read((9, 10), "a")) == {}
    assert kinds(first, clear((5, 6)), second, read((9, 10), "")) == {}
    assert kinds(first, clear((5, 6)), second, read((9, 10), "a")) == {"resurrected": 1}


def test_phantom_nobody_wrote_it() -> None:
    assert kinds(append((1, 2), "a"), read((3, 4), "a x")) == {"phantom": 1}


def test_phantom_the_store_said_it_was_not_written() -> None:
    assert kinds(append((1, 2), "a b", end="fail"), read((3, 4), "a b")) == {"phantom": 1}


def test_phantom_before_it_was_written() -> None:
    assert kinds(read((1, 2), "a"), append((3, 4), "a")) == {"phantom": 1}


def test_phantom_of_another_session() -> None:
    verdict = judge(history(append((1, 2), "a", session="mine"), read((3, 4), "a", session="yours")))
    assert verdict.counts == {"phantom": 1}
    assert "'mine'" in verdict.violations[0].story


@pytest.mark.parametrize("seen", ["a", "b", "a c"])
def test_torn_part_of_a_turn(seen: str) -> None:
    assert kinds(append((1, 2), "a b c"), read((3, 4), seen)) == {"torn": 1}


def test_torn_also_when_it_may_not_have_been_written() -> None:
    assert kinds(append((1, None), "a b"), read((3, 4), "a")) == {"torn": 1}


def test_torn_two_turns_mixed() -> None:
    assert kinds(append((1, 5), "a b"), append((2, 6), "x y", "v"), read((7, 8), "a x b y")) == {"torn": 2}


# --- order -----------------------------------------------------------------------------------------------------


def test_misordered_within_a_writer() -> None:
    assert kinds(append((1, 2), "a"), append((3, 4), "b"), read((5, 6), "b a")) == {"misordered": 1}


def test_misordered_between_writers_that_do_not_overlap() -> None:
    assert kinds(append((1, 2), "a"), append((3, 4), "b", "v"), read((5, 6), "b a")) == {"misordered": 1}


def test_misordered_within_a_turn() -> None:
    assert kinds(append((1, 2), "a b"), read((5, 6), "b a")) == {"misordered": 1}


def test_misordered_when_a_read_had_it_before_the_other_began() -> None:
    assert kinds(append((1, 9), "a"), read((2, 3), "a"), append((4, 9), "b", "v"), read((10, 11), "b a")) == {
        "misordered": 1
    }


def test_misordered_two_readers_disagree() -> None:
    appends = append((1, 9), "a"), append((1, 9), "b", "v")
    assert kinds(*appends, read((10, 11), "a b"), read((12, 13), "b a")) == {"misordered": 1}


def test_misordered_three_readers_disagree_in_a_circle() -> None:
    appends = [append((1, 99), value, value) for value in "abc"]
    reads = read((2, 50), "a b", "p"), read((3, 51), "b c", "q"), read((4, 52), "c a", "r")
    assert kinds(*appends, *reads)["misordered"] == 1


def test_non_prefix_two_readers_go_on_differently() -> None:
    appends = append((1, 20), "a"), append((1, 20), "b", "v")
    assert kinds(*appends, read((2, 5), "a"), read((3, 6), "b", "q")) == {"non_prefix": 1}


def test_non_prefix_what_was_read_is_gone_and_was_never_acknowledged() -> None:
    assert kinds(append((1, None), "a"), read((2, 3), "a"), read((4, 5), "")) == {"non_prefix": 1}


# --- clear -----------------------------------------------------------------------------------------------------


def test_a_clear_empties_and_an_append_beside_it_falls_on_either_side() -> None:
    for seen in ("", "b"):
        assert kinds(append((1, 2), "a"), clear((3, 8)), append((4, 5), "b"), read((9, 10), seen)) == {}


def test_resurrected_after_a_clear() -> None:
    assert kinds(append((1, 2), "a"), clear((3, 4)), read((5, 6), "a")) == {"resurrected": 1}


def test_resurrected_by_an_append_that_read_before_the_clear_and_wrote_after_it() -> None:
    assert kinds(append((1, 2), "a"), clear((3, 8)), append((4, 9), "b"), read((10, 11), "a b")) == {"resurrected": 1}


def test_a_clear_that_may_have_happened_excuses_what_it_could_have_cleared() -> None:
    first = append((1, 2), "a"), clear((3, 4), end="info")
    assert kinds(*first, read((5, 6), "")) == {}
    assert kinds(*first, read((5, 6), "a"), read((7, 8), "")) == {}
    assert kinds(*first, append((5, 6), "b"), read((7, 8), "a")) == {"lost": 1}
    assert kinds(*first, read((5, 6), ""), read((7, 8), "a")) == {"resurrected": 1}


def test_lost_after_a_clear_is_lost_all_the_same() -> None:
    assert kinds(append((1, 2), "a"), clear((3, 4)), append((5, 6), "b"), read((7, 8), "")) == {"lost": 1}


def test_erased_is_gone_and_so_are_its_snapshots() -> None:
    first = append((1, 2), "a"), snapshot((3, 4)), call("e", "erase", (5, 6))
    assert kinds(*first, read((7, 8), "")) == {}
    assert kinds(*first, read((7, 8), "a")) == {"resurrected": 1}
    assert kinds(*first, rollback((7, 8), end="fail"), read((9, 10), "")) == {}
    assert kinds(*first, rollback((7, 8)), read((9, 10), "a"))["resurrected"] >= 1


def test_a_replace_leaves_what_it_wrote() -> None:
    first = append((1, 2), "a"), call("p", "replace", (3, 4), "x y")
    assert kinds(*first, append((5, 6), "b"), read((7, 8), "x y b")) == {}
    assert kinds(*first, read((7, 8), "a x y")) == {"resurrected": 1}
    assert kinds(*first, read((7, 8), "")) == {"lost": 1}


# --- trim ------------------------------------------------------------------------------------------------------


def test_a_trim_leaves_a_suffix() -> None:
    appends = append((1, 2), "a"), append((3, 4), "b"), append((5, 6), "c")
    for seen in ("c", "b c"):
        assert kinds(*appends, trim((7, 8), 2), read((9, 10), seen)) == {}
    assert kinds(*appends, trim((7, 8)), read((9, 10), "a b c")) == {}
    assert kinds(*appends, trim((7, 8), 2), read((9, 10), "a b c")) == {"resurrected": 1}
    assert kinds(*appends, trim((7, 8), 2), read((9, 10), "b")) == {"lost": 1}
    assert kinds(*appends, trim((7, 8), 2), read((9, 10), "")) == {"lost": 1}
    assert kinds(*appends, trim((7, 8), 2), read((9, 10), "a c")) != {}


def test_a_trim_takes_nothing_from_what_fits() -> None:
    assert kinds(append((1, 2), "a"), append((3, 4), "b"), trim((5, 6), 2), read((7, 8), "b")) == {"lost": 1}


def test_a_trim_may_cut_through_a_turn_from_the_front_only() -> None:
    first = append((1, 2), "a b"), trim((3, 4), 1)
    assert kinds(*first, read((5, 6), "b")) == {}
    assert kinds(*first, read((5, 6), "a")) == {"torn": 1}
    assert kinds(append((1, 2), "a b"), read((5, 6), "b")) == {"torn": 1}


def test_lost_in_a_trim_that_read_before_the_append_and_wrote_after_it() -> None:
    beside = append((1, 2), "a"), trim((3, 8), 5), append((4, 6), "b")
    assert kinds(*beside, read((9, 10), "a")) == {"lost": 1}
    assert kinds(*beside, append((11, 12), "c"), read((13, 14), "a c")) == {"lost": 1}
    assert kinds(*beside, read((9, 10), "a b")) == {}


def test_a_trim_may_be_planned_a_moment_before_it_hides() -> None:
    beside = append((1, 2), "a"), append((3, 4), "b"), trim((5, 20), 1), append((6, 7), "c")
    assert kinds(*beside, read((8, 9), "a b c"), append((10, 11), "d"), read((21, 22), "b c d")) == {}


def test_a_trim_may_have_counted_what_was_appended_beside_a_replace_and_never_seen() -> None:
    """`x y` came after the replace: with it `r` no longer fits beside `c`."""
    erased = append((4, 16), "a b"), snapshot((13, 24)), call("e", "erase", (16, 38)), append((18, 25), "d e f")
    replaced = call("w", "replace", (47, 56), "r")
    trimmed = append((59, 73), "c"), trim((65, 70), 2), read((68, 89), "c")
    assert kinds(*erased, append((32, 61), "x y", "v"), replaced, *trimmed) == {}
    assert kinds(*erased, append((32, 46), "x y", "v"), replaced, *trimmed) == {"lost": 1}


def test_resurrected_after_a_trim() -> None:
    appends = append((1, 2), "a"), append((3, 4), "b")
    assert kinds(*appends, trim((5, 6), 1), read((7, 8), "b"), read((9, 10), "a b")) == {"resurrected": 1}


# --- snapshots -------------------------------------------------------------------------------------------------


def test_a_rollback_returns_to_the_snapshot() -> None:
    first = append((1, 2), "a"), snapshot((3, 4)), append((5, 6), "b"), rollback((7, 8))
    assert kinds(*first, read((9, 10), "a")) == {}
    assert kinds(*first, read((9, 10), "a b")) == {"resurrected": 1}
    assert kinds(*first, read((9, 10), "")) == {"lost": 1}
    assert kinds(*first, append((9, 10), "c"), rollback((11, 12)), read((13, 14), "a")) == {}
    assert kinds(*first, append((9, 10), "c"), rollback((11, 12)), read((13, 14), "a c")) == {"resurrected": 1}


def test_a_snapshot_beside_an_append_has_it_or_not_and_always_the_same() -> None:
    first = append((1, 2), "a"), snapshot((3, 6)), append((4, 5), "b"), rollback((7, 8))
    for seen in ("a", "a b"):
        again = rollback((11, 12)), read((13, 14), seen)
        assert kinds(*first, read((9, 10), seen), *again) == {}
    assert kinds(*first, read((9, 10), "a"), rollback((11, 12)), read((13, 14), "a b")) != {}


def test_roll_forward_brings_back_what_the_later_snapshot_has() -> None:
    first = snapshot((1, 2), "one"), append((3, 4), "a"), snapshot((5, 6), "two")
    assert (
        kinds(*first, rollback((7, 8), "one"), read((9, 10), ""), rollback((11, 12), "two"), read((13, 14), "a")) == {}
    )


def test_a_read_of_a_snapshot_has_what_was_there() -> None:
    first = append((1, 2), "a"), snapshot((3, 4)), append((5, 6), "b"), clear((7, 8))
    assert kinds(*first, read((9, 10), "a", snapshot="S"), read((11, 12), "")) == {}
    assert kinds(*first, read((9, 10), "a b", snapshot="S")) == {"non_prefix": 1}
    assert kinds(*first, read((9, 10), "", snapshot="S")) == {"non_prefix": 1}


def test_of_a_snapshot_from_before_the_recording_nothing_is_known() -> None:
    assert kinds(append((1, 2), "a"), rollback((3, 4), "old"), read((5, 6), "")) == {}
    assert kinds(append((1, 2), "a"), read((5, 6), "", snapshot="old")) == {}


def test_an_undo_may_bring_back_anything_but_what_follows_must_be_there() -> None:
    first = append((1, 2), "a"), clear((3, 4)), call("u", "undo", (5, 6))
    for seen in ("", "a"):
        assert kinds(*first, read((7, 8), seen)) == {}
    assert kinds(*first, append((7, 8), "b"), read((9, 10), "a b")) == {}
    assert kinds(*first, append((7, 8), "b"), read((9, 10), "a")) == {"lost": 1}
    assert kinds(*first, read((7, 8), "a"), read((9, 10), "")) == {"lost": 1}


# --- what is left open -----------------------------------------------------------------------------------------


def test_where_too_much_overlaps_it_says_so_and_finds_its_way_again() -> None:
    """Forty calls at once that wipe everything, in an order that nobody can tell, and then a loss that anyone can."""
    storm = [call(f"p{number}", "replace", (10, 20), f"x{number}") for number in range(20)]
    storm += [call(f"k{number}", "snapshot", (10, 20), snapshot=f"S{number}") for number in range(10)]
    storm += [call(f"b{number}", "rollback", (30, 40), snapshot=f"S{number}") for number in range(10)]
    after = read((50, 51), "x3"), append((52, 53), "a"), clear((54, 55)), append((56, 57), "b"), read((58, 59), "")
    verdict = judge(history(*storm, *after))
    assert verdict.undecided == ("s",)
    assert verdict.counts == {"lost": 1}
