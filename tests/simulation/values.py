"""Values that a simulated Redis keeps, streams and sorted sets, and the texts that name places in them. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

Id = tuple[int, int]
LOWEST, HIGHEST = (0, 0), (2**64 - 1, 2**64 - 1)


class Stream:
    """Entries by id, in order. `last` stays when entries are deleted."""

    __slots__ = ("ids", "last", "rows")

    def __init__(self) -> None:
        self.ids: list[Id] = []
        self.rows: dict[Id, list[bytes]] = {}
        self.last: Id = (0, 0)

    def copy(self) -> Stream:
        twin = Stream()
        twin.ids, twin.rows, twin.last = list(self.ids), dict(self.rows), self.last
        return twin

    def between(self, first: Id, last: Id) -> list[Id]:
        return self.ids[bisect_left(self.ids, first) : bisect_right(self.ids, last)]


class Sorted(dict[bytes, float]):
    """Members with scores."""

    def copy(self) -> Sorted:
        return Sorted(self)

    def between(self, first: bytes, last: bytes) -> list[bytes]:
        low, over_low = _bound(first)
        high, over_high = _bound(last)
        found = [
            (score, member)
            for member, score in self.items()
            if (score > low if over_low else score >= low) and (score < high if over_high else score <= high)
        ]
        return [member for _, member in sorted(found)]


def listed(members: Sorted, found: list[bytes], how: tuple[bytes, ...]) -> list[bytes]:
    """The members that were found, as LIMIT and WITHSCORES have them."""
    options = [option.upper() for option in how]
    if b"LIMIT" in options:
        place = options.index(b"LIMIT")
        start, count = int(how[place + 1]), int(how[place + 2])
        found = found[start : start + count] if count >= 0 else found[start:]
    if b"WITHSCORES" in options:
        return [part for member in found for part in (member, b"%.17g" % members[member])]
    return found


def _bound(text: bytes) -> tuple[float, bool]:
    return (float(text[1:]), True) if text[:1] == b"(" else (float(text), False)


def id_of(text: bytes, default: int) -> Id:
    first, dash, second = text.partition(b"-")
    return int(first), int(second) if dash else default


def low(text: bytes) -> Id:
    if text[:1] == b"(":
        first, second = id_of(text[1:], 0)
        return first, second + 1
    return LOWEST if text == b"-" else HIGHEST if text == b"+" else id_of(text, 0)


def high(text: bytes) -> Id:
    return LOWEST if text == b"-" else HIGHEST if text == b"+" else id_of(text, 2**64 - 1)


def stream_id(name: Id) -> bytes:
    return b"%d-%d" % name
