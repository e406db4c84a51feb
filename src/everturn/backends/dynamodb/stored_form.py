"""Stored form: names of keys, the items of a session, and the values in them. Pure: no IO. docs/storage-dynamodb.md.

A table has the keys `pk` and `sk`, both strings. All items of a session have one `pk`. Its head is one item; everything
else of a life has the id of its log in its `sk`, so that a new life never meets the items of an old one. Every item has
a seal, and the head counts what could vanish unseen: docs/decisions/100-dynamodb-damage.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from zlib import crc32

import msgspec

from everturn.backend import LeaseRow, State, UndoStep
from everturn.core.paths import Jump
from everturn.model import SessionInfo
from everturn.transfer.session_lines import ChangePart

Item: TypeAlias = dict[str, Any]
HEAD = "H"  # sorts behind the entries (E): a query backwards from here meets the head, then the latest entries
# First letters of the other items of a log.
CHANGES, ENTRIES, EFFECT, JUMPS, KEY, NEEDED, SNAPSHOT, SUMMARY, CHUNK = "C", "E", "F", "J", "K", "N", "P", "S", "X"
BEGUN = "B"  # of a note that an effect was begun
RECEIPTS = "R"  # of the calls that an erasure took away: of no log
PURGE = "purge_at"  # the table's TTL attribute: on items that nobody needs after a while
SEAL = "seal"  # on every item: a checksum of its keys and its other attributes
WAITING = "waiting"  # on a head: the queue, which changes without it (head_queue.py)
BODIES = ("lines", "raw", "b")  # attributes with bodies of entries, which have checksums of their own

encode = msgspec.json.Encoder().encode


class Head(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The session: its facts and its present state. life "": there is none; a lease, or a trace of an erasure.

    `log` names the items of this life. `jumps` are the latest, newest first; the others are in `jump_blocks` items.
    `needed` is the number of the item that says which entries a compaction left (0: there was none). `snapshots`,
    `effects` and `summaries` are how many items of these there are, so that one that vanishes is missed. (Of summaries
    there may be more: pointers that were written for an attempt that failed.) `noted` is how many effects have a note
    that they were begun: all, except in a session of before there were notes. `marked_at` is the version of the latest
    change of a snapshot or an effect: their items change in place, entries do not.
    """

    session_id: str
    life: str = ""
    log: str = ""
    version: int = 0
    last_seq: int = 0
    state: State = State()
    size: int = 0  # bytes of the stored bodies
    dimension: int | None = None
    created_at: float = 0.0
    changed_at: float = 0.0
    ttl: float | None = None
    expires_at: float | None = None
    forked_from: str | None = None
    call: bytes = b""  # of the latest change
    snapshots: int = 0
    effects: int = 0
    noted: int = 0
    summaries: int = 0
    marked_at: int = 0
    undo: tuple[UndoStep, ...] = ()  # oldest first
    jumps: tuple[Jump, ...] = ()
    jump_blocks: int = 0
    needed: int = 0
    lease: LeaseRow | None = None
    facts: dict[str, str] = {}

    def has_marks_of(self, other: Head) -> bool:
        """Say whether the snapshots and effects of another moment are those of this one."""
        return (self.log, self.marked_at) == (other.log, other.marked_at)

    @property
    def info(self) -> SessionInfo:
        """Facts of the session."""
        return SessionInfo(
            *(self.session_id, self.life, self.version, self.state.messages, self.last_seq, self.size),
            *(self.snapshots, len(self.undo), self.created_at, self.changed_at, self.ttl, self.expires_at),
            self.forked_from,
            self.facts,
        )


class StoredHead(msgspec.Struct, frozen=True, gc=False):
    """The head as it is in the table. `tag` is new with every write of it: a write names the tag it was planned on.

    `waiting` is the queue of changes that are let go first (head_queue.py). It is no part of the state.
    """

    tag: bytes
    head: Head
    waiting: tuple[str, ...] = ()

    def living(self, now: float) -> Head | None:
        """Return the session; None if there is none, or it has expired."""
        head = self.head
        return head if head.life and (head.expires_at is None or head.expires_at > now) else None


_decode_head = msgspec.json.Decoder(Head).decode
_decode_changes = msgspec.json.Decoder(list[ChangePart]).decode


def session_key(namespace: str, session_id: str) -> str:
    """Make the `pk` of a session."""
    return f"session/{_escaped(namespace)}/{session_id}"


def names_key(namespace: str) -> str:
    """Make the `pk` under which the names of all sessions of a namespace are."""
    return f"names/{_escaped(namespace)}"


def cleanup_key(namespace: str) -> str:
    """Make the `pk` under which logs are noted that are to be removed, or were staged."""
    return f"cleanup/{_escaped(namespace)}"


def _escaped(namespace: str) -> str:
    return namespace.replace("~", "~~").replace("/", "~s")


def sealed(item: Item) -> Item:
    """Return an item with its seal."""
    return {**item, SEAL: {"N": str(_sum_of(item))}}


def is_sound(item: Mapping[str, Any]) -> bool:
    """Say whether an item is as it was written, and under its own keys. Its keys and its seal must have been read."""
    return bool(item.get(SEAL, {}).get("N") == str(_sum_of(item)))


def opened(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an item. Raises ValueError if it is not as it was written."""
    if not is_sound(item):
        raise ValueError(f"the item {item['sk']['S']!a} is not as it was written")
    return item


def _sum_of(item: Mapping[str, Any]) -> int:
    parts = [(name, *item[name].items()) for name in sorted(item) if name not in (SEAL, PURGE, WAITING, *BODIES)]
    return crc32(msgspec.msgpack.encode(parts))


def number(value: int) -> str:
    """Write a seq or version so that strings sort as numbers."""
    return f"{value:012d}"


def head_item(pk: str, stored: StoredHead, purge_at: float | None = None) -> Item:
    """Make the item of a head."""
    item: Item = {
        "pk": {"S": pk},
        "sk": {"S": HEAD},
        "tag": {"B": stored.tag},
        "session": {"S": encode(stored.head).decode()},
    }
    if purge_at is not None:
        item[PURGE] = {"N": str(int(purge_at) + 1)}
    return item


def head_of(item: Mapping[str, Any] | None) -> StoredHead | None:
    """Read a head. Raises ValueError or KeyError if it is not as it was written."""
    if not item:
        return None
    item = opened(item)
    return StoredHead(item["tag"]["B"], _decode_head(item["session"]["S"]), waiting_in(item))


def waiting_in(item: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the queue of a head."""
    return tuple(place["S"] for place in item.get(WAITING, {}).get("L", ()))


def text_item(pk: str, sk: str, **texts: str) -> Item:
    """Make an item with attributes that are texts."""
    return {"pk": {"S": pk}, "sk": {"S": sk}, **{name: {"S": text} for name, text in texts.items()}}


def changes_item(pk: str, log: str, changes: list[ChangePart]) -> Item:
    """Make the item of some changes that follow each other. One that is made here is alone in its item."""
    sk = f"{CHANGES}{log}/{number(changes[0].version)}"
    return text_item(pk, sk, changes=encode(changes).decode())


def changes_of(item: Mapping[str, Any]) -> list[ChangePart]:
    """Read the changes of an item, oldest first."""
    return _decode_changes(opened(item)["changes"]["S"])


def sk_of(item: Mapping[str, Any]) -> str:
    """Return the `sk` of an item."""
    return str(item["sk"]["S"])


def key_sk(head: Head, key: bytes) -> str:
    """Name the item of an idempotency key."""
    return f"{KEY}{head.log}/{key.hex()}"


def versions_of(key_item: Item) -> list[int]:
    """List the versions of the changes that used a key."""
    return [int(name[1:]) for name in key_item and opened(key_item) if name[0] == "v" and name[1:].isdigit()]
