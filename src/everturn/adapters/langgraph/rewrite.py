"""Entries written again at new seqs, with their refs: after time travel, or a deletion of checkpoints. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile

import msgspec

from everturn import Record
from everturn.adapters._shared.values import equal
from everturn.adapters.langchain.messages import named
from everturn.adapters.langgraph.cache import ChannelContents
from everturn.adapters.langgraph.checkpoint_log import (
    CHECKPOINT,
    LEFT,
    MESSAGES,
    WRITES,
    CheckpointLog,
    Ranges,
    Ref,
    StoredCheckpoint,
    ranges_of,
    seqs_in,
    written,
)
from everturn.adapters.langgraph.message_refs import quotes_in, requoted
from everturn.model import JSON, Entry


def entries_to_leave(log: CheckpointLog, base: int) -> tuple[list[Entry], Mapping[int, int], int | None]:
    """Return what time travel to the checkpoint at `base` has to write again: entries, their new seqs, and after which
    seq. Messages after the base become those of a left branch. The seq is None if there are none.
    """
    first = next((seq for seq in log.said if seq > base), None)
    if first is None:
        return [], {}, None
    after = max((entry.seq or 0 for entry in log.entries if (entry.seq or 0) < first), default=0)
    return *_left_behind(log, after), after


def _left_behind(log: CheckpointLog, after: int) -> tuple[list[Entry], Mapping[int, int]]:
    """Return every entry after a seq, to be written again, with its messages as those of a left branch.

    Returns the entries, and the new seq of each.
    """
    stay = [entry for entry in log.entries if (entry.seq or 0) > after]
    rewriting = _Rewriter(log, stay, left={*log.said, *log.left}, after=after)
    return rewriting.entries(), rewriting.places


def base_in_history(base: StoredCheckpoint, known: ChannelContents) -> tuple[StoredCheckpoint, ChannelContents]:
    """Return a checkpoint to go on from, reduced to messages that are in the session's history.

    Its messages of a left branch have to be stored again. All its ranges are closed.
    """
    refs: dict[str, Ref] = {}
    for channel, ref in base.refs.items():
        refs[channel] = ref | {"closed": True} if isinstance(ref, dict) and "n" in ref else ref
    versions = base.versions
    if known.said is not None and known.left:
        seen = list(takewhile(lambda bounds: len(bounds) == 2, refs[MESSAGES]["said"]))
        said = tuple(takewhile(lambda item: item[0] not in known.left, known.said))
        refs[MESSAGES] = {"said": seen, "n": len(said), "closed": True}
        known = msgspec.structs.replace(known, said=said, left=frozenset())
        versions = {channel: version for channel, version in versions.items() if channel != MESSAGES}
    return msgspec.structs.replace(base, state=base.state | {"refs": refs, "versions": versions}), known


def entries_to_keep(log: CheckpointLog, keep: Collection[str]) -> list[Entry]:
    """Return the entries to keep after a deletion: those that the kept checkpoints need, and those of others.

    The log must be of the whole session.
    """
    said, left = sorted(log.said), sorted(log.left)
    spoken = {seq: _spoken(log.checkpoint_at(seq), said, left) for seq in log.bodies}
    kept = {log.seqs[name] for name in keep}
    ours = {seq for seqs in spoken.values() for seq in seqs}
    ours |= {*seqs_in([bounds for ref in _quotes(log, log.bodies, log.seqs) for bounds in ref["said"]], said, left)}
    needed = {at for seq in kept for at in spoken[seq]}
    # Messages that are only quoted are kept, but belong to no conversation any more.
    quoted = {*seqs_in([bounds for ref in _quotes(log, kept, keep) for bounds in ref["said"]], said, left)} - needed
    gone = {*ours, *left} - needed - quoted

    def stays(entry: Entry) -> bool:
        if isinstance(entry, Record) and entry.kind == CHECKPOINT:
            return entry.seq in kept
        if isinstance(entry, Record) and entry.kind == WRITES:
            name = entry.body["for"]
            return name in keep or name not in log.seqs
        return entry.seq not in gone

    aside = {*left}
    if kept and not aside.isdisjoint(spoken[max(kept)]):  # the latest kept checkpoint is on a left branch
        head = log.checkpoint_at(max(kept))
        aside = ours - {at for stored in (head, *log.ancestors(head)) if stored.id in keep for at in spoken[stored.seq]}
    staying = [entry for entry in log.entries if stays(entry)]
    return _Rewriter(log, staying, left=aside | quoted, checkpoints=keep).entries()


class _Rewriter:
    """Rewrites entries of a log to new seqs after its end, with all their refs adjusted."""

    def __init__(
        self,
        log: CheckpointLog,
        stay: Sequence[Entry],
        *,
        left: Container[int],
        after: int = 0,
        checkpoints: Container[str] | None = None,
    ) -> None:
        """`left`: seqs of the messages that will be on a left branch. `after`: entries up to this seq keep their place.
        `checkpoints`: ids of those that stay, if not all do; parents that go are dropped."""
        self._checkpoints = checkpoints
        self.places = {entry.seq or 0: log.last_seq + 1 + index for index, entry in enumerate(stay)}
        self._log = log
        self._stay = stay
        self._after = after
        self._said, self._left = sorted(log.said), sorted(log.left)
        aside = [seq for seq in (*self._said, *self._left) if seq in self.places and seq in left]
        moved = sorted(self.places[seq] for seq in aside)
        others = sorted(
            self.places[seq] for seq in (*self._said, *self._left) if seq in self.places and seq not in left
        )
        self._aside = {*aside}
        self._is_left = {*moved, *(seq for seq in self._left if seq <= after)}
        self._following = dict(pairwise([*(seq for seq in self._said if seq <= after), *others]))
        self._following |= dict(pairwise([*(seq for seq in self._left if seq <= after), *moved]))
        before = [seq for seq in log.bodies if seq <= after]
        self._base = log.checkpoint_at(before[-1]) if before else None
        self._known = {*_covered(self._said, (log.checkpoint_at(seq) for seq in log.bodies if seq > after))}
        self._lists: dict[str, list[JSON]] = {}
        self._homes: dict[tuple[int, str], int] = {}

    def entries(self) -> list[Entry]:
        return [self._entry(entry) for entry in self._stay]

    def _entry(self, entry: Entry) -> Entry:
        if entry.seq in self._log.said or entry.seq in self._log.left:
            message = self._log.said.get(entry.seq) or self._log.left[entry.seq]
            if entry.seq in self._known:
                message = named(message, entry.seq)
            return Record(LEFT, message.to_dict()) if entry.seq in self._aside else message
        if isinstance(entry, Record) and entry.kind == CHECKPOINT:
            return self._checkpoint(self._log.checkpoint_at(entry.seq or 0))
        if isinstance(entry, Record) and entry.kind == WRITES:
            return Record(WRITES, entry.body | {"writes": requoted(entry.body["writes"], self._ranges)})
        return entry

    def _checkpoint(self, old: StoredCheckpoint) -> Record:
        seq = self.places[old.seq]
        refs: dict[str, Ref] = {}
        values: dict[str, JSON] = {}
        pieces: dict[str, list[JSON]] = {}
        lists: dict[str, list[JSON]] = {}
        for channel, ref in old.refs.items():
            if isinstance(ref, int):
                refs[channel] = ref if ref <= self._after else self._homes.setdefault((ref, channel), seq)
                if refs[channel] == seq:
                    values[channel] = requoted(self._log.bodies[ref]["values"][channel], self._ranges)
            elif "said" in ref:
                refs[channel] = {"said": self._ranges(ref["said"]), "n": ref["n"], "closed": True}
            elif "list" in ref and self._after:  # all checkpoints with pieces of it stay
                refs[channel] = {"list": self._moved(ref["list"]), "n": ref["n"], "closed": True}
                pieces |= {channel: requoted(old.pieces[channel], self._ranges)} if channel in old.pieces else {}
            elif "list" in ref:
                lists[channel] = requoted(nodes_of(self._log, channel, ref), self._ranges)
                refs[channel] = self._rewritten_list(channel, lists[channel], seq, pieces)
            else:
                refs[channel] = ref
        self._lists = lists
        has_parent = self._checkpoints is None or (old.parent is not None and old.parent in self._checkpoints)
        stored = msgspec.structs.replace(
            old,
            seq=seq,
            parent=old.parent if has_parent else None,
            state=old.state | {"refs": refs},
            values=values,
            pieces=pieces,
            said=0,
            early=tuple(self.places.get(at, at) for at in old.early if self._stays(at)),
            awaiting=tuple((name, self.places.get(at, at)) for name, at in old.awaiting if self._stays(at)),
        )
        self._base, record = written(stored, self._base)
        return record

    def _stays(self, seq: int) -> bool:
        return seq in self.places or seq <= self._after

    def _ranges(self, ranges: Ranges) -> Ranges:
        if not self._after:
            found = seqs_in(ranges, self._said, self._left)
            return ranges_of([self.places[seq] for seq in found], self._following, self._is_left)
        moved: Ranges = []
        for bounds in ranges:
            found = [seq for seq in seqs_in([bounds], self._said, self._left) if seq > self._after]
            moved += self._staying(bounds)
            moved += ranges_of([self.places[seq] for seq in found], self._following, self._is_left)
        return moved

    def _moved(self, ranges: Ranges) -> Ranges:
        """Return ranges of checkpoints, all of which stay, at their new seqs."""
        moved: Ranges = []
        for bounds in ranges:
            found = [
                self.places[seq] for seq in self._log.bodies if self._after < seq and bounds[0] <= seq <= bounds[1]
            ]
            moved += [*self._staying(bounds), *([[found[0], found[-1]]] if found else [])]
        return moved

    def _staying(self, bounds: list[int]) -> Ranges:
        first, last, *is_left = bounds
        return [[first, min(last, self._after), *is_left]] if first <= self._after else []

    def _rewritten_list(self, channel: str, nodes: list[JSON], seq: int, pieces: dict[str, list[JSON]]) -> Ref:
        before = self._lists.get(channel)
        old = self._base.refs.get(channel) if self._base else None
        if before is not None and isinstance(old, dict) and equal(before, nodes[: len(before)]):
            added = nodes[len(before) :]
            ranges = [*old["list"], [seq, seq]] if added else old["list"]
        else:
            added, ranges = nodes, [[seq, seq]]
        if added or before is None:
            pieces[channel] = added
        return {"list": ranges, "n": len(nodes), "closed": True}


def _quotes(log: CheckpointLog, kept: Iterable[int], keep: Container[str]) -> Iterator[Ref]:
    """Yield the refs of quotes in the values and the pending writes of the kept checkpoints."""
    for seq in kept:
        for channel, ref in log.checkpoint_at(seq).refs.items():
            if isinstance(ref, int):
                yield from quotes_in(log.bodies[ref]["values"][channel])
            elif "list" in ref:
                yield from quotes_in(nodes_of(log, channel, ref))
    for name, records in log.writes.items():
        if name in keep or name not in log.seqs:
            for _, body in records:
                yield from quotes_in(body["writes"])


def nodes_of(log: CheckpointLog, channel: str, ref: Ref) -> list[JSON]:
    """Return the items of a list as JSON. The log must have all checkpoints with pieces of it."""
    with_pieces = [seq for seq, body in log.bodies.items() if channel in body.get("pieces", {})]
    return [node for seq in seqs_in(ref["list"], with_pieces, ()) for node in log.bodies[seq]["pieces"][channel]]


def _spoken(stored: StoredCheckpoint, said: Sequence[int], left: Sequence[int]) -> list[int]:
    return [seq for ref in stored.refs.values() for seq in seqs_in(_of_messages(ref), said, left)]


def _covered(said: Sequence[int], points: Iterable[StoredCheckpoint]) -> Iterator[int]:
    """Yield those of the messages, in order, that belong to a checkpoint."""
    named = {tuple(bounds) for stored in points for ref in stored.refs.values() for bounds in _of_messages(ref)}
    ranges = deque(sorted(bounds for bounds in named if len(bounds) == 2))
    reach = 0
    for seq in said:
        while ranges and ranges[0][0] <= seq:
            reach = max(reach, ranges.popleft()[1])
        if seq <= reach:
            yield seq


def _of_messages(ref: Ref) -> Ranges:
    ranges: Ranges = ref["said"] if isinstance(ref, dict) and "said" in ref else []
    return ranges
