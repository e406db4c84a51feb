"""Blocks of entries: the entries of a turn share an item, and large bodies are cut into chunks. Pure: no IO.

A block holds entries that follow each other. Their bodies are the lines of one text, in the item itself if they are
small; else they are cut into segments, and each segment into chunks, which are items of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from everturn.backend import EntryRow
from everturn.backends.dynamodb.stored_form import CHUNK, ENTRIES, Item, encode, is_sound, number, opened
from everturn.model import MESSAGE

BLOCK_BYTES = 256 * 1024  # of bodies and kinds in one item: DynamoDB takes 400 kB, names and numbers included
BLOCK_ENTRIES = 1000
CHUNK_BYTES = 350 * 1024
SEGMENTED_ENTRIES = 5000  # in a block whose bodies are elsewhere
NO_SUM = -1  # a checksum that no body has


class BlockFacts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Everything of a block but its bodies. A checksum of None: the entry was reclaimed; of NO_SUM: it is damaged.

    `turns` and `times` have one value if it is the same for all entries. `kinds` None: all are messages. With
    `segments`, the bodies are elsewhere: for each segment how many entries it has, and in how many chunks it is.
    """

    first: int
    checksums: list[int | None]
    turns: list[int]
    times: list[float]
    kinds: list[str] | None = None
    segments: list[tuple[int, int]] = []
    owner: str = ""  # part of the names of the chunks
    is_raw: bool = False  # the bodies are MessagePack, because one is no line of text

    @property
    def count(self) -> int:
        return len(self.checksums)

    @property
    def last(self) -> int:
        return self.first + len(self.checksums) - 1

    def kind(self, index: int) -> str:
        return MESSAGE if self.kinds is None else self.kinds[index]

    def turn(self, index: int) -> int:
        return self.turns[0] if len(self.turns) == 1 else self.turns[index]

    def time(self, index: int) -> float:
        return self.times[0] if len(self.times) == 1 else self.times[index]


class Block(msgspec.Struct, frozen=True, gc=False):
    """A block of entries. `bodies` is None while they are elsewhere."""

    sk: str
    facts: BlockFacts
    bodies: list[bytes] | None

    def rows(self, first: int, last: int) -> Iterator[EntryRow]:
        """Yield the entries from `first` to `last` that it has, in order. Their bodies are there."""
        facts, bodies = self.facts, self.bodies or []
        for index in range(max(0, first - facts.first), min(facts.count, last - facts.first + 1)):
            check = facts.checksums[index]
            if check is not None:
                yield (
                    *(facts.first + index, facts.time(index), check, bodies[index]),
                    *(facts.kind(index), facts.turn(index)),
                )


_decode_facts = msgspec.json.Decoder(BlockFacts).decode


def block_of(item: Mapping[str, Any]) -> Block:
    """Read a block from its item. If its facts are not as they were written, each of its entries is damaged."""
    facts = _decode_facts(item["entries"]["S"])
    if not is_sound(item):
        checksums = [None if check is None else NO_SUM for check in facts.checksums]
        first = int(str(item["sk"]["S"]).rpartition("/")[2])
        facts = msgspec.structs.replace(facts, first=first, checksums=checksums)
    bodies = None
    if not facts.segments:
        bodies = bodies_of(item["raw"]["B"] if facts.is_raw else item["lines"]["S"].encode(), is_raw=facts.is_raw)
        if len(bodies) != facts.count:
            raise ValueError(f"it has {len(bodies)} bodies for {facts.count} entries")
    return Block(item["sk"]["S"], facts, bodies)


def without_bodies(item: Mapping[str, Any]) -> Block:
    """Read a block without its bodies. Raises ValueError if it is not as it was written."""
    return Block(item["sk"]["S"], _decode_facts(opened(item)["entries"]["S"]), None)


def bodies_of(text: bytes, *, is_raw: bool) -> list[bytes]:
    """Cut the text of a block or segment into bodies."""
    return msgspec.msgpack.decode(text, type=list[bytes]) if is_raw else text.split(b"\n")


def _text_of(bodies: Sequence[bytes], *, is_raw: bool) -> bytes:
    return msgspec.msgpack.encode(bodies) if is_raw else b"\n".join(bodies)


def _is_raw(bodies: Iterable[bytes]) -> bool:
    """Whether a body is no line of UTF-8: a damaged one that was copied here."""
    for body in bodies:
        try:
            body.decode()
        except UnicodeDecodeError:
            return True
        if b"\n" in body:
            return True
    return False


def block_items(
    pk: str, log: str, rows: Sequence[EntryRow], owner: str, *, apart: bool
) -> tuple[list[Item], list[Item]]:
    """Pack entries, which follow each other, into items: the blocks, and the chunks of bodies that are elsewhere.

    `apart`: put all bodies elsewhere, so that the blocks are few and small. `owner` makes the names of the chunks
    unique to one call: they can be written before the call is known to succeed.
    """
    blocks: list[Item] = []
    chunks: list[Item] = []
    for index, some in enumerate(_portions(rows, apart=apart)):
        is_apart = apart or sum(len(row[3]) for row in some) > BLOCK_BYTES
        block, elsewhere = _items_of(pk, log, some, f"{owner}/{index:03d}", is_apart=is_apart)
        blocks.append(block)
        chunks += elsewhere
    return blocks, chunks


def _portions(rows: Sequence[EntryRow], *, apart: bool) -> Iterator[list[EntryRow]]:
    """Divide entries into those that share an item. One that is too large is alone."""
    most = SEGMENTED_ENTRIES if apart else BLOCK_ENTRIES
    some: list[EntryRow] = []
    size = 0
    for row in rows:
        own = (0 if row[4] == MESSAGE else len(encode(row[4]))) + (0 if apart else len(row[3]))
        if some and (size + own > BLOCK_BYTES or len(some) == most or row[0] != some[-1][0] + 1):
            yield some
            some, size = [], 0
        some.append(row)
        size += own
    if some:
        yield some


def _items_of(pk: str, log: str, rows: Sequence[EntryRow], owner: str, *, is_apart: bool) -> tuple[Item, list[Item]]:
    bodies = [row[3] for row in rows]
    is_raw = _is_raw(bodies)
    kinds = [row[4] for row in rows]
    turns, times = [row[5] for row in rows], [row[1] for row in rows]
    first = rows[0][0]
    segments: list[tuple[int, int]] = []
    chunks: list[Item] = []
    if is_apart:
        for some in _portions(rows, apart=False):
            text = _text_of([row[3] for row in some], is_raw=is_raw)
            cut = [text[start : start + CHUNK_BYTES] for start in range(0, max(1, len(text)), CHUNK_BYTES)]
            names = chunk_names(log, owner, len(segments), len(cut))
            chunks += (
                {"pk": {"S": pk}, "sk": {"S": sk}, "b": {"B": part}} for sk, part in zip(names, cut, strict=True)
            )
            segments.append((len(some), len(cut)))
    facts = BlockFacts(
        first,
        [row[2] for row in rows],
        turns[:1] if len({*turns}) == 1 else turns,
        times[:1] if len({*times}) == 1 else times,
        None if {*kinds} == {MESSAGE} else kinds,
        segments,
        owner if segments else "",
        is_raw,
    )
    return block_item(pk, f"{ENTRIES}{log}/{number(first)}", facts, None if segments else bodies), chunks


def block_item(pk: str, sk: str, facts: BlockFacts, bodies: Sequence[bytes] | None) -> Item:
    """Make the item of a block; `bodies` None: they are elsewhere."""
    item: Item = {"pk": {"S": pk}, "sk": {"S": sk}, "entries": {"S": encode(facts).decode()}}
    if bodies is not None:
        text = _text_of(bodies, is_raw=facts.is_raw)
        item |= {"raw": {"B": text}} if facts.is_raw else {"lines": {"S": text.decode()}}
    return item


def chunk_names(log: str, owner: str, segment: int, count: int) -> list[str]:
    """Name the chunks of a segment, in order."""
    return [f"{CHUNK}{log}/{owner}/{segment:06d}/{chunk:06d}" for chunk in range(count)]


def size_of(items: Iterable[Item]) -> int:
    """Estimate the bytes of items, a little too high: of each value its length, and of each item its names."""
    total = 0
    for item in items:
        total += 200
        for value in item.values():
            (kind, text), *_ = value.items()
            total += len(text.encode()) if kind == "S" else len(text)
    return total
