"""Volatile values are masked, not ignored: what refers to what is still checked."""

from __future__ import annotations

from itertools import permutations
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.testing.golden.compare import compare
from everturn.testing.golden.database_image import DatabaseImage, TableImage
from everturn.testing.golden.errors import GoldenError
from everturn.testing.golden.masks import Mask
from everturn.testing.golden.render import render
from tests.golden_files.conftest import Project
from tests.tiers import examples

ONE, TWO, THREE = (str(UUID(int=number << 64 | 1 << 78 | number, version=4)) for number in (1, 2, 3))
AN, AUS = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01BX5ZZKBKACTAV9WEVGEMMVRZ"


def image(**tables: list[tuple[Any, ...]]) -> DatabaseImage:
    """Tables by name: the columns first, those of the primary key marked with a star, then the rows."""
    found = {}
    for name, (columns, *rows) in tables.items():
        key = tuple(place for place, column in enumerate(columns) if column.endswith("*"))
        found[name] = TableImage(name, tuple(column.rstrip("*") for column in columns), key, rows)
    return DatabaseImage(tables=found)


def mask(*columns: str, **options: Any) -> Mask:
    return Mask.of(columns, **options)


def is_same(left: DatabaseImage, right: DatabaseImage, *masks: Mask) -> bool:
    forth, back = compare(left, right, masks), compare(right, left, masks)
    assert forth.is_none == back.is_none
    assert compare(left, left, masks).is_none
    return forth.is_none


def talk(session: Any, *rows: tuple[Any, ...]) -> DatabaseImage:
    return image(sessions=[("id*", "title"), (session, "talk")], messages=[("session", "body"), *rows])


# --- by column -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (ONE, TWO),
        (1, 2),
        ("a", "b"),
        (b"a", b"b"),
        (1.5, 2.5),
        (1_700_000_000, 1_700_000_001),
        ("2026-01-01 10:00", "2026-01-01 10:01:02.5Z"),
    ],
)
def test_a_masked_column_may_hold_another_value(left: Any, right: Any) -> None:
    before, after = (image(t=[("k", "v"), ("x", value)]) for value in (left, right))
    assert not is_same(before, after)
    assert is_same(before, after, mask("t.v"))
    assert is_same(before, after, mask("T.V"))  # as in SQL
    assert is_same(before, after, mask("*.v"))
    assert is_same(before, after, mask("t.*", missing_ok=True))
    assert not is_same(before, after, mask("t.k"))


@pytest.mark.parametrize(("left", "right"), [(None, "a"), (1, "1"), (1, 1.0), ("a", b"a"), (None, 0)])
def test_null_and_type_stay_visible(left: Any, right: Any) -> None:
    before, after = (image(t=[("k", "v"), ("x", value)]) for value in (left, right))
    assert not is_same(before, after, mask("t.v"))


def test_other_columns_are_compared_as_ever() -> None:
    before, after = image(t=[("k", "v"), ("x", ONE)]), image(t=[("k", "v"), ("y", ONE)])
    assert not is_same(before, after, mask("t.v"))


def test_a_reference_to_a_masked_id_is_still_checked() -> None:
    before = image(s=[("id*", "n"), (ONE, "a"), (TWO, "b")], m=[("s", "body"), (ONE, "x"), (TWO, "y")])
    renamed = image(s=[("id*", "n"), (TWO, "a"), (THREE, "b")], m=[("s", "body"), (TWO, "x"), (THREE, "y")])
    crossed = image(s=[("id*", "n"), (TWO, "a"), (THREE, "b")], m=[("s", "body"), (THREE, "x"), (TWO, "y")])
    dangling = image(s=[("id*", "n"), (ONE, "a"), (TWO, "b")], m=[("s", "body"), (ONE, "x"), (THREE, "y")])
    for masks in ([mask("s.id", "m.s")], [mask("s.id"), mask("m.s")], [mask(types="uuid")]):
        assert is_same(before, renamed, *masks)
        assert not is_same(before, crossed, *masks)
        assert not is_same(before, dangling, *masks)


def test_short_values_link_only_the_columns_of_one_call() -> None:
    """7 and 7 may be equal by chance; in columns that are named together they are one."""
    before = image(s=[("id",), (7,)], m=[("s", "n"), (7, "x")])
    after = image(s=[("id",), (8,)], m=[("s", "n"), (9, "x")])
    assert not is_same(before, after, mask("s.id", "m.s"))
    assert is_same(before, after, mask("s.id"), mask("m.s"))
    before = image(s=[("id",), ("ab",)], m=[("s", "n"), ("ab", "x")])
    after = image(s=[("id",), ("cd",)], m=[("s", "n"), ("ef", "x")])
    assert not is_same(before, after, mask("s.id", "m.s"))
    assert is_same(before, after, mask("s.id"), mask("m.s"))


def test_long_values_are_one_wherever_they_are_masked() -> None:
    before, after = talk(ONE, (ONE, "x")), talk(TWO, (THREE, "x"))
    assert not is_same(before, after, mask("sessions.id"), mask("messages.session"))
    assert is_same(before, talk(TWO, (TWO, "x")), mask("sessions.id"), mask("messages.session"))
    octets = [UUID(text).bytes for text in (ONE, TWO, THREE)]
    before, after = talk(octets[0], (octets[0], "x")), talk(octets[1], (octets[2], "x"))
    assert not is_same(before, after, mask("sessions.id"), mask("messages.session"))


def test_the_same_value_twice_in_a_column_stays_the_same_value() -> None:
    before = image(t=[("k*", "v"), (1, "a"), (2, "a"), (3, "b")])
    after = image(t=[("k*", "v"), (1, "x"), (2, "y"), (3, "y")])
    assert is_same(before, image(t=[("k*", "v"), (1, "x"), (2, "x"), (3, "y")]), mask("t.v"))
    assert not is_same(before, after, mask("t.v"))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((1_700_000_000, 1_700_000_000), (1_800_000_000, 1_800_000_001)),
        ((1_700_000_000_000, 1_700_000_000_000), (1_800_000_000_000, 1_800_000_000_001)),
        ((1.5, 1.5), (2.5, 2.75)),
        (("2026-01-01 10:00:00", "2026-01-01 10:00:00"), ("2026-01-01 10:00:00", "2026-01-01 10:00:01")),
    ],
)
def test_clock_readings_may_be_equal_in_one_run_and_not_in_the_next(left: Any, right: Any) -> None:
    """Else a test would fail when the second changes between two rows."""
    before, after = (image(t=[("k*", "at"), *enumerate(values)]) for values in (left, right))
    assert is_same(before, after, mask("t.at"))


def test_numbers_that_are_no_clock_readings_are_told_apart() -> None:
    before, after = image(t=[("k*", "n"), (1, 5), (2, 5)]), image(t=[("k*", "n"), (1, 6), (2, 7)])
    assert not is_same(before, after, mask("t.n"))
    assert is_same(before, after, mask("t.n", types="epoch"))  # unless it is said that they are


# --- by type and pattern, also inside text ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [
        ("uuid", ONE, TWO),
        ("uuid", ONE.upper(), TWO.upper()),
        ("ulid", AN, AUS),
        ("ulid", AN.lower(), AUS.lower()),
        ("timestamp", "2026-11-15T10:20:30Z", "2027-01-02 03:04:05.678901+02:00"),
        ("timestamp", "20261115T102030Z", "2026-11-15 10:20"),
    ],
)
def test_a_type_is_masked_alone_and_inside_text(kind: str, left: str, right: str) -> None:
    for around in ("{}", "see {}.", '{{"id": "{}", "n": 1}}', "({})", "{} and {}"):
        before, after = (image(t=[("v",), (around.format(value, value),)]) for value in (left, right))
        assert is_same(before, after, mask(types=kind))
        assert is_same(before, after, mask("t.v", types=[kind]))
        other = image(t=[("v",), (around.format(right, right) + "!",)])
        assert not is_same(before, other, mask(types=kind))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("uuid", "0" * 32),
        ("uuid", "a" + ONE),
        ("uuid", ONE + "0"),
        ("ulid", "8" + AN[1:]),
        ("ulid", AN + "0"),
        ("ulid", AN.replace("A", "U")),
        ("timestamp", "2026-13-15T10:20:30Z"),
        ("timestamp", "2026-11-15"),
        ("timestamp", "1700000000"),
        ("timestamp", "12026-11-15T10:20:30"),
    ],
)
def test_what_only_looks_like_a_type_is_not_masked(kind: str, text: str) -> None:
    before, after = image(t=[("v",), (text,)]), image(t=[("v",), (text + "x",)])
    assert compare(before, after, (mask(types=kind),)).idle == (f"mask(types={kind!r}): there is none on either side",)


def test_an_id_inside_text_is_linked_to_the_column_it_is_from() -> None:
    before = talk(ONE, (ONE, f"I am {ONE}"))
    assert is_same(before, talk(TWO, (TWO, f"I am {TWO}")), mask(types="uuid"))
    assert not is_same(before, talk(TWO, (TWO, f"I am {THREE}")), mask(types="uuid"))


def test_a_type_may_be_masked_in_some_columns_only() -> None:
    before, after = image(t=[("a", "b"), (ONE, ONE)]), image(t=[("a", "b"), (TWO, TWO)])
    assert not is_same(before, after, mask("t.a", types="uuid"))
    assert is_same(before, after, mask("t.a", "t.b", types="uuid"))


def test_a_pattern_masks_what_it_matches_and_links_it() -> None:
    before = image(t=[("v",), ("order #12 for #7",), ("again #12",)])
    assert is_same(before, image(t=[("v",), ("order #34 for #5",), ("again #34",)]), mask(pattern=r"#\d+"))
    assert not is_same(before, image(t=[("v",), ("order #34 for #5",), ("again #5",)]), mask(pattern=r"#\d+"))
    assert not is_same(before, image(t=[("v",), ("order #34 for #5",), ("again 34",)]), mask(pattern=r"#\d+"))


def test_numbers_are_masked_by_column_only() -> None:
    before, after = image(t=[("v",), (1_700_000_000,)]), image(t=[("v",), (1_700_000_001,)])
    assert not compare(before, after, (mask(types="timestamp"),)).is_none
    assert not compare(before, after, (mask(pattern=r"\d+"),)).is_none
    assert is_same(before, after, mask("t.v"))


# --- rows that look alike --------------------------------------------------------------------------------------------


def test_rows_that_look_alike_are_told_apart_by_who_refers_to_them() -> None:
    def chat(first: str, second: str, order: int = 1) -> DatabaseImage:
        sessions = [(first,), (second,)][::order]
        return image(s=[("id*",), *sessions], m=[("s", "body"), (first, "x"), (first, "x"), (second, "x")])

    assert is_same(chat(ONE, TWO), chat(THREE, ONE, -1), mask("s.id", "m.s"))
    other = image(s=[("id*",), (ONE,), (TWO,)], m=[("s", "body"), (ONE, "x"), (ONE, "x"), (ONE, "x")])
    assert not is_same(chat(ONE, TWO), other, mask("s.id", "m.s"))


def test_a_chain_is_followed_to_its_end() -> None:
    """A list of messages that differ in nothing but what they answer: LangGraph's checkpoints are such."""

    def chain(*ids: str) -> DatabaseImage:
        return image(c=[("id*", "parent"), *zip(ids, (None, *ids[:-1]), strict=True)][::1])

    ids = [str(UUID(int=number + 1, version=4)) for number in range(150)]
    other = [str(UUID(int=number + 1000, version=4)) for number in range(150)]
    assert is_same(chain(*ids), chain(*other), mask("c.*"))
    forked = chain(*other).tables["c"]
    rows = [*forked.rows[:-1], (forked.rows[-1][0], forked.rows[-3][0])]
    assert not is_same(chain(*ids), image(c=[("id*", "parent"), *rows]), mask("c.*"))


def test_two_circles_are_not_one() -> None:
    """No local look can tell them apart: it must not be called equal for that."""

    def circles(*lengths: int) -> DatabaseImage:
        rows, base = [], 0
        for length in lengths:
            rows += [(f"n{base + n}", f"n{base + (n + 1) % length}") for n in range(length)]
            base += length
        return image(c=[("id*", "next"), *rows])

    assert is_same(circles(6), circles(6), mask("c.id", "c.next"))
    assert not is_same(circles(6), circles(3, 3), mask("c.id", "c.next"))


IDS = st.sampled_from(range(5))


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=st.lists(st.tuples(IDS, st.sampled_from("xy"), IDS | st.none()), max_size=7),
    others=st.lists(st.tuples(IDS, st.sampled_from("xy"), IDS | st.none()), max_size=7),
    naming=st.permutations(range(5)),
    shuffled=st.randoms(use_true_random=False),
)
def test_equal_means_that_some_naming_makes_them_equal(rows: Any, others: Any, naming: Any, shuffled: Any) -> None:
    def named(rows: Any, names: Any) -> list[Any]:
        return [(names[a], text, None if b is None else names[b]) for a, text, b in rows]

    def t(rows: Any) -> DatabaseImage:
        return image(t=[("a", "v", "b"), *rows])

    masks = (mask("t.a", "t.b"),)
    renamed = named(rows, naming)
    shuffled.shuffle(renamed)
    assert compare(t(rows), t(renamed), masks).is_none
    truth = any(sorted(named(rows, names), key=repr) == sorted(others, key=repr) for names in permutations(range(5)))
    found = compare(t(rows), t(others), masks).is_none
    assert found <= truth, "called equal what is not"
    assert found == truth, "called different what is equal"


# --- masks that make no sense ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["created_at"]}, r"name a column as 'table.column'"),
        ({"columns": []}, r"mask\(\) of nothing"),
        ({"columns": [], "types": "guid"}, "there are uuid, ulid, timestamp, epoch"),
        ({"columns": [], "types": "epoch"}, "say in which columns"),
        ({"columns": [], "pattern": "("}, "is not a regular expression"),
    ],
)
def test_a_mask_that_makes_no_sense_is_refused(options: Any, message: str) -> None:
    with pytest.raises(GoldenError, match=message):
        Mask.of(**options)


def test_a_mask_that_matches_on_neither_side_is_named_with_what_there_is() -> None:
    both = image(snapshots=[("id*", "created_at"), (1, 1.5)])
    masks = (mask("snapshots.craeted_at"), mask("snapshot.created_at"), mask(pattern="zz"), mask(types=["ulid"]))
    assert compare(both, both, masks).idle == (
        "mask('snapshots.craeted_at'): there is no such column on either side; snapshots has created_at, id",
        "mask('snapshot.created_at'): there is no such column on either side; the tables are snapshots",
        "mask(pattern='zz'): it is in no text on either side",
        "mask(types='ulid'): there is none on either side",
    )
    assert compare(both, both, (mask("a.b", pattern="zz", missing_ok=True),)).idle == ()


def test_a_mask_that_matches_on_one_side_is_good() -> None:
    left, right = image(t=[("v",)]), image(t=[("v",), (ONE,)], u=[("w",)])
    for side in ((left, right), (right, left)):
        assert compare(*side, (mask(types="uuid"), mask("u.w"))).idle == ()


def test_a_column_that_is_empty_is_not_missing() -> None:
    empty = image(t=[("v",)])
    assert compare(empty, empty, (mask("t.v"),)).idle == ()


def test_an_idle_mask_fails_the_test_after_the_diff(project: Project) -> None:
    project.tests("""
        @pytest.mark.snapshot_db(build=make)
        def test_masks(snapshot_db):
            snapshot_db.run(say, snapshot_db.path, "hi")
    """)
    project.update()
    project.tests("""
        @pytest.mark.snapshot_db(build=make)
        def test_masks(snapshot_db):
            snapshot_db.mask("messages.at")
            snapshot_db.run(say, snapshot_db.path, "ho")
    """)
    result = project.pytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*body*'hi'*'ho'*",
            "a mask has nothing to mask*",
            "  mask('messages.at'): there is no such column on either side; *",
        ]
    )
    before = project.files()
    project.update().assert_outcomes(failed=1)
    assert project.files() == before


def test_artifacts_keep_real_values_and_an_update_that_differs_in_masked_ones_only_writes_nothing(
    project: Project,
) -> None:
    project.tests("""
        import uuid, time

        def stamp(path):
            db = sqlite3.connect(path)
            id = str(uuid.uuid4())
            db.execute("CREATE TABLE s (id TEXT PRIMARY KEY, at REAL)")
            db.execute("CREATE TABLE m (s TEXT, body TEXT)")
            db.execute("INSERT INTO s VALUES (?, ?)", (id, time.time()))
            db.execute("INSERT INTO m VALUES (?, ?)", (id, f"of {id}"))
            db.commit()
            db.close()

        @pytest.mark.snapshot_db(mask="s.at")
        def test_stamps(snapshot_db):
            snapshot_db.mask(types="uuid")
            snapshot_db.run(stamp, snapshot_db.path)
    """)
    project.update().assert_outcomes(passed=1)
    before = project.files()
    project.pytest().assert_outcomes(passed=1)
    project.update().assert_outcomes(passed=1)
    assert project.files() == before
    octets = (project.root / "snapshots/test_it/test_stamps.sqlite").read_bytes()
    assert b"of " in octets
    assert b"<uuid" not in octets


def test_the_diff_shows_placeholders_and_the_same_one_for_the_same_value() -> None:
    s, m = ("id*", "at", "n"), ("id*", "s", "body")
    before = image(s=[s, (ONE, 1.5, 7)], m=[m, (1, ONE, f"to {TWO} at 2026-01-01 10:00:00")])
    after = image(s=[s, (THREE, 2.5, 8)], m=[m, (1, THREE, f"for {TWO} at 2026-01-01 10:00:01")])
    difference = compare(before, after, (mask(types=["uuid", "timestamp"]), mask("s.at")))
    assert list(render(difference)) == [
        "  table  expected  actual  missing  added  changed",
        "  m             1       1        -      -        1",
        "  s             1       1        -      -        1",
        "",
        "m, by id",
        "          expected                 actual",
        "  ~ id=1",
        "    body  'to <uuid 1> at <time>'  'for <uuid 1> at <time>'",
        "",
        "s, by id",
        "       expected  actual",
        "  ~ id='<uuid 2>'",
        "    n  7         8",
    ]
