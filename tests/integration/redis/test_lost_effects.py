"""Redis: an effect without its field does not begin again; a begin costs no more among many (docs/decisions/121)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import everturn
from everturn import CorruptEntry

COLLIDING = ("pay 13490", "pay 35034")  # the first eight digits of SHA-1 are the same
META = "everturn:{:a}:meta"


def scans(client: Any) -> int:
    """Count the looks at all effects of a session, since the server started."""
    return int(client.info("commandstats").get("cmdstat_hscan", {}).get("calls", 0))


def marks(client: Any) -> list[bytes]:
    return [field for field in client.hkeys(META) if field.startswith(b"begun:")]


def begin(store: Any, *numbers: int) -> None:
    for number in numbers:
        assert store.begin_effect("a", f"pay {number}").status == "new"


def test_no_effect_of_many_begins_again_once_its_field_is_lost(store: Any, client: Any) -> None:
    """The marks of each are found, however often they were shared out between fields."""
    for count in (1, 2, 16, 17, 18, 32, 33, 65, 200):
        begin(store, *range(len(store.get_effects("a")), count))
        for number in range(count):
            field = f"effect:pay {number}"
            kept = client.hget(META, field)
            client.hdel(META, field)
            with pytest.raises(CorruptEntry, match="effects"):
                store.begin_effect("a", f"pay {number}")
            client.hset(META, field, kept)
        assert len(marks(client)) == (count + 15) // 16
    assert store.verify().ok


def test_a_begin_looks_at_few_fields_among_many_effects(store: Any, client: Any) -> None:
    begin(store, 0)
    before = scans(client)
    begin(store, *range(1, 200))
    assert scans(client) == before


LOST: dict[str, Callable[[Any], object]] = {
    "its marks": lambda client: client.hdel(META, *marks(client)),
    "a field of marks": lambda client: client.hdel(META, "begun:0"),
    "a damaged field of marks": lambda client: client.hset(META, "begun:0", b"00000000 ffffffff"),
    "marks of another": lambda client: client.hset(META, "begun:0", client.hget(META, "begun:1")),
    "nothing": lambda client: None,
}


@pytest.mark.parametrize("damage", LOST)
def test_lost_marks_are_made_anew_and_hide_no_loss(store: Any, client: Any, damage: str) -> None:
    """A session of before there were marks has none."""
    begin(store, *range(40))
    LOST[damage](client)
    client.hdel(META, "effect:pay 7")
    kept = client.dump(META)
    for number in (7, 41, 42, 43, 44):  # of a new one, too, where it is not shown to be new
        client.restore(META, 0, kept, replace=True)
        if number == 7 or damage == "its marks":
            with pytest.raises(CorruptEntry, match="effects"):
                store.begin_effect("a", f"pay {number}")
    assert not store.verify("a").ok


@pytest.mark.parametrize("damage", LOST)
def test_a_session_without_marks_gets_them(store: Any, client: Any, damage: str) -> None:
    begin(store, *range(40))
    LOST[damage](client)
    begin(store, *range(40, 60))
    assert len(marks(client)) == 4
    before = scans(client)
    begin(store, *range(60, 80))
    assert scans(client) == before
    assert store.verify().ok
    assert [effect.key for effect in store.get_effects("a")] == [f"pay {number}" for number in range(80)]


def test_marks_come_with_a_copy(store: Any, client: Any) -> None:
    with everturn.open("sqlite://") as source:
        for number in range(40):
            source.begin_effect("a", f"pay {number}")
        everturn.copy(source, store)
        assert len(marks(client)) == 3
        source.begin_effect("a", "another")
        everturn.copy(source, store)  # adds to it
        before = scans(client)
        begin(store, 40)
        assert scans(client) == before


def test_a_key_whose_mark_is_that_of_another_begins(store: Any, client: Any) -> None:
    """Eight digits are few."""
    one, other = COLLIDING
    for key in (one, other, "third"):
        assert store.begin_effect("a", key).status == "new"
        assert store.begin_effect("a", key).status == "started"
    client.hdel(META, f"effect:{other}")
    with pytest.raises(CorruptEntry, match="effects"):
        store.begin_effect("a", other)
