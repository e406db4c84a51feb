"""Reads the log of a session: blocks of entries in a range, changes, jumps, snapshots, effects. Writes nothing.

Items of a log never change once the head names them, but for entries that a compaction reclaims. So they can be read
after the head, in several requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

import msgspec

from everturn.backend import REMEMBERED, EntryRow, State, StoredEffect
from everturn.backends.dynamodb.entry_blocks import (
    NO_SUM,
    Block,
    BlockFacts,
    block_of,
    bodies_of,
    chunk_names,
    without_bodies,
)
from everturn.backends.dynamodb.stored_form import (
    BEGUN,
    CHANGES,
    EFFECT,
    ENTRIES,
    JUMPS,
    NEEDED,
    SEAL,
    SNAPSHOT,
    SUMMARY,
    Head,
    Item,
    changes_of,
    number,
    opened,
    sk_of,
    text_item,
)
from everturn.backends.dynamodb.table import Table, gone
from everturn.backends.dynamodb.visibility import RECENT, seqs_written, settle
from everturn.core.codec import digest
from everturn.core.paths import Jump, Range, Reach, clip, out_of
from everturn.transfer.session_lines import ChangePart, EffectPart, SnapshotPart

NEAR_ENTRIES = 8  # seqs: two entries that are nearer to each other are read by one query
_decode_jumps = msgspec.json.Decoder(list[Jump]).decode
_decode_snapshot = msgspec.json.Decoder(SnapshotPart).decode
_decode_effect = msgspec.json.Decoder(EffectPart).decode
_decode_reach = msgspec.json.Decoder(Reach).decode


class LogReader:
    """Reads what belongs to one life of a session."""

    def __init__(self, table: Table, head: Head, deadline: float, blocks: Sequence[Block] = ()) -> None:
        self.table = table
        self.head = head
        self.pk = table.key_of(head.session_id)
        self.deadline = deadline
        self._latest = list(blocks)  # the latest of the log, newest first, if they came along with the head
        self._jumps: list[Jump] | None = None

    def _sk(self, letter: str, *parts: str) -> str:
        return "/".join((letter + self.head.log, *parts))

    async def jumps(self) -> list[Jump]:
        """List all jumps, newest first."""
        if self._jumps is None:
            older: list[Jump] = []
            if self.head.jump_blocks:
                low, high = self._sk(JUMPS, number(1)), self._sk(JUMPS, number(self.head.jump_blocks))
                items = await self.table.all(self.pk, low, high, self.deadline)
                if len(items) != self.head.jump_blocks:
                    await self._settle(self._sk(JUMPS, number(self.head.jump_blocks)))
                    raise ValueError(f"{len(items)} of {self.head.jump_blocks} items of jumps are there")
                older = [jump for item in reversed(items) for jump in _decode_jumps(opened(item)["jumps"]["S"])]
            self._jumps = [*self.head.jumps, *older]
        return self._jumps

    async def _settle(self, *absent: str) -> None:
        """Return if these items are lost. Raise a fault that passes if they could not be seen yet."""
        await settle(self.table, self.head, self.deadline, absent=absent)

    # --- entries -----------------------------------------------------------------------------------------------------

    async def settle_entry(self, seq: int) -> None:
        """Return if an entry that was not there is lost, or raise a fault that passes: as `_settle` does."""
        starts = {seq}
        before = await self.table.latest(self.pk, self._sk(ENTRIES, ""), self._sk(ENTRIES, number(seq)), self.deadline)
        if before is not None:
            facts = without_bodies(before).facts
            if facts.last >= seq:
                if facts.checksums[seq - facts.first] is not None and not await self._lacks_chunks(facts, seq):
                    raise gone(self.table.client.name)  # it has come meanwhile
                return
            starts.add(facts.last + 1)
        latest: list[ChangePart] = []
        async for page in self.changes_back(RECENT):
            latest = page
            break
        starts |= {written.start for written in seqs_written(latest) if seq in written}
        absent = [self._sk(ENTRIES, number(start)) for start in sorted(starts)]
        if not latest or latest[0].version != self.head.version:
            absent.append(self._sk(CHANGES, number(self.head.version)))
        await self._settle(*absent)

    async def _lacks_chunks(self, facts: BlockFacts, seq: int) -> bool:
        """Say whether a chunk of the body of an entry is lost. Raises a fault that passes if it is yet to be seen."""
        names = next((names for start, count, names in self._segments(facts) if start <= seq < start + count), [])
        there = {sk for _, sk in await self.table.get_many([(self.pk, name) for name in names], self.deadline)}
        absent = [name for name in names if name not in there]
        if absent:
            await self._settle(*absent)
        return bool(absent)

    async def blocks(self, first: int, last: int, *, bodies: bool = True) -> AsyncIterator[list[Block]]:
        """Yield the blocks that have entries from `first` to `last`, in order, a page at a time."""
        start = number(first)
        if first > 1:
            before = await self.table.latest(self.pk, self._sk(ENTRIES, ""), self._sk(ENTRIES, start), self.deadline)
            if before is not None:
                start = str(before["sk"]["S"]).rpartition("/")[2]
        low, high = self._sk(ENTRIES, start), self._sk(ENTRIES, number(last))
        only = None if bodies else f"pk, sk, entries, {SEAL}"
        async for page in self.table.pages(self.pk, low, high, self.deadline, only=only):
            found = [block_of(item) if bodies else without_bodies(item) for item in page]
            yield [block for block in found if block.facts.last >= first]

    async def blocks_back(self, first: int, last: int, wanted: int) -> AsyncIterator[list[Block]]:
        """Yield the blocks that have entries from `first` to `last`, newest first. `wanted`: about how many entries."""
        known = [block for block in self._latest if block.facts.first <= last]
        if known:
            yield [block for block in known if block.facts.last >= first]
            if known[-1].facts.first <= first:
                return
            last = known[-1].facts.first - 1
        elif self._latest and self._latest[-1].facts.first <= first:
            return
        per_block = max(1, self.head.last_seq // max(1, self.head.version))
        limit = max(2, min(1000, 1 + wanted // per_block))
        low, high = self._sk(ENTRIES, ""), self._sk(ENTRIES, number(last))
        async for page in self.table.pages(self.pk, low, high, self.deadline, newest=True, limit=limit):
            found = [block_of(item) for item in page]
            yield [block for block in found if block.facts.last >= first]
            if found and found[-1].facts.first <= first:
                return

    async def rows(self, blocks: Iterable[Block], first: int, last: int) -> list[EntryRow]:
        """List the entries of blocks that are from `first` to `last`, in order. Fetches bodies that are elsewhere."""
        found: list[EntryRow] = []
        for block in blocks:
            whole = block if block.bodies is not None else await self._with_bodies(block, first, last)
            found += whole.rows(first, last)
        return found

    async def _with_bodies(self, block: Block, first: int, last: int) -> Block:
        """Fetch the bodies of the entries from `first` to `last`; the others are left empty."""
        facts = block.facts
        wanted = [part for part in self._segments(facts) if part[0] <= last and part[0] + part[1] > first]
        keys = [(self.pk, name) for _, _, names in wanted for name in names]
        items = await self.table.get_many(keys, self.deadline)
        bodies: list[bytes] = [b""] * facts.count
        checksums = list(facts.checksums)
        for start, count, names in wanted:
            at = start - facts.first
            if not all((self.pk, name) in items for name in names):
                checksums[at : at + count] = [None] * count  # they are lost
                continue
            found = bodies_of(b"".join(items[self.pk, name]["b"]["B"] for name in names), is_raw=facts.is_raw)
            if len(found) == count:
                bodies[at : at + count] = found
            else:
                checksums[at : at + count] = [NO_SUM] * count
        return Block(block.sk, msgspec.structs.replace(facts, checksums=checksums), bodies)

    def _segments(self, facts: BlockFacts) -> Iterator[tuple[int, int, list[str]]]:
        """Yield the segments of a block: the first entry, how many there are, and the names of the chunks."""
        start = facts.first
        for index, (count, chunks) in enumerate(facts.segments):
            yield start, count, chunk_names(self.head.log, facts.owner, index, chunks)
            start += count

    async def entries(self, seqs: Iterable[int]) -> list[EntryRow]:
        """List single entries, in order; those that are not there are left out."""
        wanted = sorted({*seqs})
        groups: list[list[int]] = []
        for seq in wanted:
            if groups and seq - groups[-1][-1] <= NEAR_ENTRIES:
                groups[-1].append(seq)
            else:
                groups.append([seq])
        found: list[EntryRow] = []
        for group in groups:
            rows: list[EntryRow] = []
            async for page in self.blocks_back(group[0], group[-1], group[-1] - group[0] + 1):
                rows = [*await self.rows(reversed(page), group[0], group[-1]), *rows]
            found += (row for row in rows if row[0] in group)
        return found

    async def summaries(self, first: int, last: int) -> list[int]:
        """List the seqs of the summaries from `first` to `last`, in order. Raises ValueError if some are lost."""
        if first > last or not self.head.summaries:
            return []

        items = await self._counted(SUMMARY, self.head.summaries, "summaries", self._summaries_of, or_more=True)
        seqs = [int(sk_of(item).rpartition("/")[2]) for item in items]
        return [seq for seq in seqs if first <= seq <= last]

    async def summaries_back(self, first: int, last: int, wanted: int | None = None) -> AsyncIterator[list[int]]:
        """Yield the seqs of the summaries from `first` to `last`, newest first, a page at a time.

        `wanted`: about how many, if not all.
        """
        if first > last:
            return
        low, high = self._sk(SUMMARY, number(first)), self._sk(SUMMARY, number(last))
        async for page in self.table.pages(self.pk, low, high, self.deadline, newest=True, limit=wanted, only="sk"):
            yield [int(sk_of(item).rpartition("/")[2]) for item in page]

    def _summaries_of(self, changes: Sequence[ChangePart]) -> list[str]:
        return [self._sk(SUMMARY, number(seq)) for written in seqs_written(changes) for seq in reversed(written)]

    def _snapshots_of(self, changes: Sequence[ChangePart]) -> list[str]:
        return [self.snapshot_sk(change.snapshot_id) for change in changes if change.snapshot_id]

    def _effects_of(self, changes: Sequence[ChangePart]) -> list[str]:
        return [self.effect_sk(part.label) for part in changes if part.kind == "begin_effect" and part.label]

    def _notes_of(self, changes: Sequence[ChangePart]) -> list[str]:
        return [self._sk(BEGUN, sk.rpartition("/")[2]) for sk in self._effects_of(changes)]

    async def _counted(
        self,
        letter: str,
        wanted: int,
        called: str,
        items_of: Callable[[Sequence[ChangePart]], list[str]],
        *,
        or_more: bool = False,
        only: str | None = None,
    ) -> list[Item]:
        """List the items of a kind that the head counts. Raises ValueError if some are lost.

        A fault that passes, if a transaction is to be seen later: one of the latest changes (newest first), whose items
        `items_of` names.
        """
        items = await self.table.all(self.pk, *_span(self._sk(letter, "")), self.deadline, only=only)
        if len(items) == wanted or (or_more and len(items) > wanted):
            return items
        there = {sk_of(item) for item in items}
        latest: list[ChangePart] = []
        async for latest in self.changes_back(RECENT):  # noqa: B007 - one page of them
            break
        names = items_of(latest)
        absent = [name for name in names if name not in there]
        if not latest or latest[0].version != self.head.version:
            absent.insert(0, self._sk(CHANGES, number(self.head.version)))
        present = [name for name in names if name in there]
        await settle(self.table, self.head, self.deadline, absent=absent, present=present)
        raise ValueError(f"{len(items)} of {wanted} {called} are there")

    # --- changes -----------------------------------------------------------------------------------------------------

    async def changes_back(self, limit: int = 64, newest: int | None = None) -> AsyncIterator[list[ChangePart]]:
        """Yield the remembered changes, newest first, a page at a time."""
        last = self.head.version if newest is None else min(newest, self.head.version)
        low, high = self._sk(CHANGES, ""), self._sk(CHANGES, number(last))
        async for page in self.table.pages(self.pk, low, high, self.deadline, newest=True, limit=limit):
            yield [part for item in page for part in reversed(changes_of(item)) if part.version <= last]

    async def change(self, version: int) -> ChangePart | None:
        """Find a change; None if it is forgotten. Raises ValueError if it is lost."""
        if not 0 < version <= self.head.version:
            return None
        found = None
        async for page in self.changes_back(1, version):
            found = next((part for part in page if part.version == version), None)
            break
        if found is None and version > self.head.version - REMEMBERED:
            await self._settle(self._sk(CHANGES, number(version)))
            raise ValueError(f"not all changes up to version {self.head.version} are there")
        return found

    async def needed(self) -> Reach | None:
        """Read which entries the latest compaction left. None: there was none."""
        if not self.head.needed:
            return None
        sk = self._sk(NEEDED, number(self.head.needed))
        item = await self.table.get(self.pk, sk, self.deadline)
        if item is None:
            await self._settle(sk)  # another compaction may have put one of its own in its place
            raise ValueError("the item that says which entries are left is not there")
        return _decode_reach(opened(item)["needed"]["S"])

    async def state_after(self, version: int) -> State | None:
        """Find the state after a change (0: before the first); None if it is not known, or shows reclaimed entries."""
        state = State()
        if version == 0:
            return state
        found = await self.change(version)
        if found is None or not found.readable:
            return None
        return None if (await self.unreadable([found]))[0] else found.state

    async def unreadable(self, changes: Sequence[ChangePart]) -> list[bool]:
        """Tell of each change whether its state cannot be read any more."""
        left = await self.needed()
        if left is None:
            return [not part.readable for part in changes]
        lost = out_of(left, [part.state for part in changes], await self.jumps())
        return [not part.readable or is_lost for part, is_lost in zip(changes, lost, strict=True)]

    # --- snapshots and effects ---------------------------------------------------------------------------------------

    def snapshot_sk(self, snapshot_id: str) -> str:
        return self._sk(SNAPSHOT, snapshot_id)

    async def snapshot(self, snapshot_id: str) -> State | None:
        """Find the state of a snapshot; None if there is none. Raises ValueError if one is lost."""
        item = await self.table.get(self.pk, self.snapshot_sk(snapshot_id), self.deadline)
        if item is None:
            if self.head.snapshots:
                await self._settle(self.snapshot_sk(snapshot_id))
                await self._counted(SNAPSHOT, self.head.snapshots, "snapshots", self._snapshots_of, only="sk")
            return None
        return _decode_snapshot(opened(item)["snapshot"]["S"]).state

    async def unnoted_effects(self) -> list[Item]:
        """Make notes of all effects. Raises ValueError if one is lost: it would begin again."""
        items = await self._counted(EFFECT, self.head.effects, "effects", self._effects_of, only="sk")
        return [text_item(self.pk, self._sk(BEGUN, sk_of(item).rpartition("/")[2])) for item in items]

    async def check_notes(self) -> None:
        """Raise ValueError if a note that an effect was begun is lost or damaged."""
        for item in await self._counted(BEGUN, self.head.noted, "notes of effects", self._notes_of, or_more=True):
            opened(item)

    async def snapshots(self) -> list[SnapshotPart]:
        """List the snapshots, in the order they were taken. Raises ValueError if one is lost."""
        items = await self._counted(SNAPSHOT, self.head.snapshots, "snapshots", self._snapshots_of)
        parts = [_decode_snapshot(opened(item)["snapshot"]["S"]) for item in items]
        if any(part.version > self.head.version for part in parts):
            raise gone(self.table.client.name)  # taken meanwhile, and another may have been deleted
        return sorted(parts, key=lambda part: part.version)

    def effect_sk(self, key: str) -> str:
        return self._sk(EFFECT, digest(key.encode()).hex())

    async def effects(self) -> list[StoredEffect]:
        """List the effects, in the order in which they were begun. Raises ValueError if one is lost."""
        items = await self._counted(EFFECT, self.head.effects, "effects", self._effects_of)
        return sorted(map(effect_of, items), key=lambda row: (row.began, row.key))


def effect_of(item: Item) -> StoredEffect:
    """Read an effect from its item."""
    return _decode_effect(opened(item)["effect"]["S"]).row


def _span(prefix: str) -> tuple[str, str]:
    return prefix, prefix + "\U0010ffff"


def log_span(letter: str, log: str) -> tuple[str, str]:
    """Bound the `sk` of all items of a kind in a log."""
    return _span(f"{letter}{log}/")


def clipped(ranges: Iterable[Range], first: int, last: int) -> list[Range]:
    """Cut ranges to a part, in order."""
    return sorted(clip(ranges, first, last))
