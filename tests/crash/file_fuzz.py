"""Damages a SQLite file in one place, reads everything, and judges: was it loud, or harmless?

    python -m tests.crash.file_fuzz --flips 3000 --seed 1

Loud: an error of everturn's, from every read that would be wrong. Harmless: everything reads as before. Anything else
is silent (an answer that is not what was stored) or raw (another program's error), and both are findings; so is damage
that `verify` does not name, or that ends it.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import everturn
from everturn import ChatMessage, MemoryStore, MemoryStoreError, Record, Summary, ToolCall

PAGE = 4096
RICH = [f"customer {name}" for name in ("Ada", "Bob", "Çelik", "Dora")]
SMALL = [f"customer {number:03}" for number in range(60)]


def build(path: Path, **options: Any) -> None:
    """A file with sessions that have everything a session can have."""
    dice = random.Random(7)
    with everturn.open(f"sqlite:///{path}", synchronous="OFF", **options) as store:
        for number, name in enumerate(SMALL):
            store.add_messages(name, [ChatMessage("user", f"{name} asks"), ChatMessage("assistant", "x" * number)])
        for name in RICH:
            _fill(store, name, dice)
        store.fork(RICH[0], "a fork of Ada")
        store.set_ttl(RICH[1], 10**9)
        store.erase(SMALL[30])  # so that there are free pages, perhaps
        store.replace(RICH[2], [ChatMessage("user", "edited")], after=4)
        for name in RICH[:2]:
            store.lease(name, seconds=86_400)  # it is held throughout


def _fill(store: MemoryStore, name: str, dice: random.Random) -> None:
    for turn in range(14):
        said = f"{name} says {turn} " + "y" * dice.randrange(600)
        store.add_messages(name, [ChatMessage("user", said), ChatMessage("assistant", f"{turn}?")], key=f"{name}{turn}")
        if turn % 3 == 0:
            store.append(name, [ToolCall("look_up", {"order": turn}, result="z" * dice.randrange(200))])
        if turn % 4 == 0:
            store.append(name, [Summary(f"summary {turn}", [float(turn), 1.0, -1.0], (1, 2)), Record("note", turn)])
        if turn in (3, 8):
            store.save_snapshot(name, f"at {turn}")
        if turn in (5, 10):
            store.rollback_to_snapshot(name, store.list_snapshots(name)[-1])
    store.set_facts(name, {"user": name, "team": "north" if name < "C" else "south"})
    for number in range(12):
        store.begin_effect(name, f"{name} pays {number}", {"amount": number, "for": "z" * dice.randrange(200)})
        if number % 3 == 0:
            store.finish_effect(name, f"{name} pays {number}", {"receipt": number})
        elif number % 3 == 1:
            store.fail_effect(name, f"{name} pays {number}", "no funds")
    store.add_messages(name, [ChatMessage("user", "large" * 2000)])  # overflow pages
    store.trim(name, max_messages=30)
    store.append(name, [ChatMessage("user", "the last")])


def _read_only(store: MemoryStore, names: list[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every read there is, by name."""
    yield "sessions", lambda: store.sessions(limit=1000)
    yield "recent", lambda: store.sessions(limit=1000, order="recent")
    yield "find", lambda: store.find("says 3")
    yield "by fact", lambda: store.sessions(where={"team": "north"})
    yield "by two facts", lambda: store.sessions(where={"team": "south", "user": RICH[3]})
    for name in names:
        yield f"{name}: history", lambda name=name: store.get_history(name)
        yield f"{name}: info", lambda name=name: store.info(name)
        if name not in RICH:
            continue
        yield f"{name}: latest", lambda name=name: store.get_history(name, limit=5)
        yield f"{name}: window", lambda name=name: store.get_history(name, after=3, before=20)
        yield f"{name}: version", lambda name=name: store.get_history(name, at=9)
        yield f"{name}: state", lambda name=name: store.state(name)
        yield f"{name}: tool calls", lambda name=name: store.get_tool_calls(name)
        yield f"{name}: summaries", lambda name=name: store.get_summaries(name)
        yield f"{name}: hits", lambda name=name: store.search_summaries(name, [1.0, 1.0, 1.0])
        yield f"{name}: snapshots", lambda name=name: store.list_snapshots(name)
        yield f"{name}: changes", lambda name=name: store.changes(name, 1000)
        yield f"{name}: effects", lambda name=name: store.get_effects(name)
        yield f"{name}: context", lambda name=name: store.get_context(name, max_messages=5)
        yield f"{name}: found", lambda name=name: store.find("says", session_id=name)
        for index in (0, 1):
            snapshot = SNAPSHOTS.get((name, index))
            yield f"{name}: at {index}", lambda name=name, at=snapshot: store.get_history(name, at=at)


SNAPSHOTS: dict[tuple[str, int], str] = {}


@dataclass
class Original:
    """A sound file, and everything that can be read from it."""

    content: bytes
    names: list[str]
    answers: dict[str, Any]
    has_checksums: bool

    @classmethod
    def of(cls, path: Path) -> Original:
        with everturn.open(f"sqlite:///{path}") as store:
            assert store.verify().ok
            names = [session.session_id for session in store.sessions(limit=1000).sessions]
            for name in RICH:
                for index, snapshot in enumerate(store.list_snapshots(name)):
                    SNAPSHOTS[name, index] = snapshot.id
            answers = {label: read() for label, read in _read_only(store, names)}
        content = path.read_bytes()
        return cls(content, names, answers, content[20] == 8)


@dataclass
class Verdict:
    """Verdict on one damage."""

    loud: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)  # loud or wrong, and verify says nothing, or ends

    @property
    def is_good(self) -> bool:
        return not (self.silent or self.raw or self.unnamed)

    @property
    def kind(self) -> str:
        worst = ("silent", self.silent), ("raw", self.raw), ("unnamed", self.unnamed), ("loud", self.loud)
        return next((kind for kind, found in worst if found), "harmless")


def judge(original: Original, damaged: bytes, path: Path, dice: random.Random) -> Verdict:
    """Read everything from a damaged copy."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(damaged)
    verdict = Verdict()
    try:
        # With time enough: on a busy machine `verify` ended for want of it, which says nothing of the damage.
        store = everturn.open(f"sqlite:///{path}", synchronous="OFF", timeout=60)
    except MemoryStoreError:
        verdict.loud.append("open")
        return verdict
    except Exception as exc:  # noqa: BLE001 - that it is not ours is the finding
        verdict.raw.append(f"open: {exc!r}")
        return verdict
    with store:
        _judge_reads(store, original, verdict)
        _judge_skipping(store, original, verdict)
        _judge_verify(store, original, verdict)
        _judge_a_write(store, original, verdict, dice)
        _judge_workers(store, original, verdict, dice)
    return verdict


def _judge_reads(store: MemoryStore, original: Original, verdict: Verdict, but: str | None = None) -> None:
    for label, read in _read_only(store, original.names):
        if but is not None and not (label.endswith(": history") and not label.startswith(but)):
            continue
        try:
            answer = read()
        except MemoryStoreError as exc:
            # An absent session, snapshot or version is an answer, too.
            absent = isinstance(exc, everturn.SessionNotFound | everturn.SnapshotNotFound | everturn.InvalidInput)
            (verdict.silent if absent else verdict.loud).append(label)
        except Exception as exc:  # noqa: BLE001 - that it is not ours is the finding
            verdict.raw.append(f"{label}: {exc!r}")
        else:
            if told(answer) != told(original.answers[label]):
                verdict.silent.append(label)


def told(answer: Any) -> Any:
    """Render every field of an answer, to compare it. (Entries that differ in seq and time alone are equal.)"""
    if isinstance(answer, list | tuple):
        return [told(part) for part in answer]
    if isinstance(answer, ChatMessage | ToolCall | Summary | Record):
        return answer.seq, answer.created_at, answer
    if isinstance(answer, msgspec.Struct):
        return [told(getattr(answer, name)) for name in answer.__struct_fields__]
    return answer


def _judge_skipping(store: MemoryStore, original: Original, verdict: Verdict) -> None:
    """Check that skipping leaves out entries only: the rest is as it was, and in order."""
    for name in RICH:
        try:
            rest = iter(told(original.answers[f"{name}: history"]))
            if not all(message in rest for message in told(store.get_history(name, on_corrupt="skip"))):
                verdict.silent.append(f"{name}: skipping")
        except MemoryStoreError:
            pass
        except Exception as exc:  # noqa: BLE001 - that it is not ours is the finding
            verdict.raw.append(f"{name}: skipping: {exc!r}")


def _judge_verify(store: MemoryStore, original: Original, verdict: Verdict) -> None:
    try:
        report = store.verify()
    except Exception as exc:  # noqa: BLE001 - that it is not ours is the finding
        verdict.unnamed.append(f"verify ends: {exc!r}")
        return
    if report.ok and (verdict.loud or verdict.silent or verdict.raw or original.has_checksums):
        verdict.unnamed.append("verify finds nothing")
    fine = sum(f"{name}: history" not in {*verdict.loud, *verdict.silent} for name in original.names)
    if report.sessions < fine:
        verdict.unnamed.append(f"verify looks at {report.sessions} sessions, and {fine} can be read")


def _judge_a_write(store: MemoryStore, original: Original, verdict: Verdict, dice: random.Random) -> None:
    """A turn that is written lands in its session, or nowhere."""
    name = dice.choice(original.names)
    try:
        store.add_messages(name, [ChatMessage("user", "one more")])
        said = [message.text for message in store.get_history(name)]
        if said != [*(message.text for message in original.answers[f"{name}: history"]), "one more"]:
            verdict.silent.append(f"{name}: one more")
    except MemoryStoreError:
        pass
    except Exception as exc:  # noqa: BLE001 - that it is not ours is the finding
        verdict.raw.append(f"{name}: one more: {exc!r}")
    _judge_reads(store, original, verdict, but=name)


def _judge_workers(store: MemoryStore, original: Original, verdict: Verdict, dice: random.Random) -> None:
    """What was begun does not begin again, and a lease that is held is not given to another."""
    name = dice.choice(RICH)
    for effect in original.answers[f"{name}: effects"]:
        if effect.status == "failed":
            continue
        try:
            if store.begin_effect(name, effect.key).status != effect.status:
                verdict.silent.append(f"{effect.key} begins again")
        except MemoryStoreError:
            pass
        except Exception as exc:  # noqa: BLE001 - that it is not ours is the finding
            verdict.raw.append(f"{effect.key}: {exc!r}")
    for name in RICH[:2]:
        try:
            store.lease(name)
        except MemoryStoreError:
            pass
        except Exception as exc:  # noqa: BLE001 - that it is not ours is the finding
            verdict.raw.append(f"{name}: lease: {exc!r}")
        else:
            # Leases are not counted. Where rows changed places in a file without page checksums, one may be given to
            # another; its fence holds then (docs/decisions/101-effects-are-counted.md).
            if original.has_checksums:
                verdict.silent.append(f"{name}: its lease was given to another")


# --- damage ----------------------------------------------------------------------------------------------------------


def flip(content: bytes, dice: random.Random) -> bytes:
    """One bit."""
    damaged = bytearray(content)
    damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
    return bytes(damaged)


def cut(content: bytes, dice: random.Random) -> bytes:
    """The end of the file is gone. (Without a byte left, it is a new file.)"""
    length = dice.randrange(1, len(content))
    return content[: length // PAGE * PAGE or length] if dice.random() < 0.5 else content[:length]


def swap_pages(content: bytes, dice: random.Random) -> bytes:
    """Two pages lie where the other should."""
    first, second = sorted(dice.sample(range(len(content) // PAGE), 2))
    damaged = bytearray(content)
    one, other = slice(first * PAGE, first * PAGE + PAGE), slice(second * PAGE, second * PAGE + PAGE)
    damaged[one], damaged[other] = damaged[other], damaged[one]
    return bytes(damaged)


def swap_rows(content: bytes, dice: random.Random) -> bytes:
    """Two rows of a page are in each other's place."""
    damaged = bytearray(content)
    while True:
        at = dice.randrange(1, len(content) // PAGE) * PAGE
        if damaged[at] in (2, 5, 10, 13) and (count := int.from_bytes(damaged[at + 3 : at + 5], "big")) > 1:
            first = at + (8 if damaged[at] > 8 else 12)
            one, other = (first + 2 * index for index in dice.sample(range(count), 2))
            damaged[one : one + 2], damaged[other : other + 2] = damaged[other : other + 2], damaged[one : one + 2]
            return bytes(damaged)


def garble(content: bytes, dice: random.Random) -> bytes:
    """A sector of 512 bytes is lost: zeros, or noise."""
    at = dice.randrange(len(content) // 512) * 512
    sector = bytes(512) if dice.random() < 0.5 else dice.randbytes(512)
    return content[:at] + sector + content[at + 512 :]


DAMAGES = {"flip": flip, "cut": cut, "swap pages": swap_pages, "swap rows": swap_rows, "garble": garble}


def rounds(original: Original, how: str, seeds: range, folder: Path) -> Iterator[tuple[int, Verdict]]:
    """The verdict on each of so many damages. Damage that changes nothing is passed over."""
    for seed in seeds:
        damaged = DAMAGES[how](original.content, random.Random(seed))
        if damaged != original.content:
            yield seed, judge(original, damaged, folder / "damaged.db", random.Random(seed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=3000)
    parser.add_argument("--others", type=int, default=0, help="of each other kind of damage")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="a file without page checksums, as older ones are")
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "sound.db"
        build(path, **({"page_checksums": False} if args.plain else {}))
        original = Original.of(path)
        print(f"{len(original.content) // PAGE} pages, {'with' if original.has_checksums else 'without'} checksums")
        for how in DAMAGES:
            first = args.seed * 1_000_000
            count = collections.Counter[str]()
            for seed, verdict in rounds(
                original, how, range(first, first + (args.flips if how == "flip" else args.others)), folder
            ):
                count[verdict.kind] += 1
                if not verdict.is_good:
                    bad += 1
                    found = [*verdict.silent, *verdict.raw, *verdict.unnamed]
                    print(f"  {how} {seed}: {verdict.kind}: {'; '.join(found)[:300]}", flush=True)
            if count:
                print(f"{how}: {dict(count)}", flush=True)
    return bool(bad)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
