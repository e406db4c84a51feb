"""Entries of a Redis log, read by columns: the same as each by itself, whatever is in them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as some

from everturn.backends.redis.stored_form import entry_value, message_columns, message_row, seq_of, seqs_of

PARTS = [b"", b"1", b"-1", b"01", b"1.5", b"1e3", b"1,2", b"[1", b"1]", b"null", b"\xff", b"\n", b"1_0", b"9" * 30]
parts = some.sampled_from(PARTS) | some.integers(0, 2**60).map(lambda number: b"%d" % number)
values = some.lists(parts, max_size=5).map(b" ".join)
SOUND = b"sound"  # stands for a value as it is written at its place


def placed(stored: list[bytes]) -> list[bytes]:
    return [
        entry_value(seq, 7, 1700000000000001, 42, b"{}") if value == SOUND else value
        for seq, value in enumerate(stored, 1)
    ]


@given(some.lists(values, max_size=5))
@example([])
@example([b""])
@example([SOUND, SOUND])
@example([b"7 1,2 5 42 {}"])
@example([SOUND, b"7 1,2 5 42 {}", b"7  5 42 {}", SOUND])
@example([SOUND, b"7 1 5 4,2 {}", b"7 1 5  {}", SOUND])
def test_columns_are_the_rows(stored: list[bytes]) -> None:
    stored = placed(stored)
    seqs = range(1, len(stored) + 1)
    rows = [message_row(seq, value) for seq, value in zip(seqs, stored, strict=True)]
    columns = message_columns(seqs, stored)
    assert list(columns) == rows
    assert len(columns) == len(rows)


def test_a_number_is_a_whole_one() -> None:
    """What is not as it was written is damage, also where a reader of JSON would let it pass."""
    for text in (b"%d 1.5 %d 42 {}", b"%d 1 %d 42.0 {}", b"%d 1 %d true {}"):
        turn, _, place, *_ = entry_value(2, 7, 1, 42, b"{}").split(b" ")
        value = text % (int(turn), int(place))
        assert [row[2] for row in message_columns([1, 2], placed([SOUND, value]))] == [42, -1]


def test_an_entry_that_stands_elsewhere_is_damaged() -> None:
    first, second = placed([SOUND, SOUND])
    assert [row[2] for row in message_columns([1, 2], [second, first])] == [-1, -1]


@given(some.lists(some.tuples(some.integers(0, 2**63), some.sampled_from([0, 0, 0, 1, 10, 100])), max_size=5))
def test_many_ids_are_each_of_them(ids: list[tuple[int, int]]) -> None:
    names = [b"%d-%d" % pair for pair in ids]
    assert seqs_of(names) == [seq_of(name) for name in names]
    assert seqs_of(names) == [seq if number == 0 else -1 for seq, number in ids]
