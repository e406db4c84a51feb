"""Clauses of faults of files: a disk that is full, no file handles, a locked file, garbage, half a file.

A fault must become an error: never silence, never an empty list, never a false acknowledgement.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from everturn.testing.contract.faults import attempt, check_in_time, judge_later, session_with_turns
from everturn.testing.faults import files
from everturn.testing.kit.clause import ClauseRegistry, NotOffered, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import ReadMessage, SentMessage
from everturn.testing.workers.controller import JobFailed
from everturn.testing.workers.messages import CallerSteps, Do, Done, FactoryHook, Ready, Step

registry = ClauseRegistry("faults")
FILLING = 30  # turns that are stored on a disk that is nearly full


@registry.clause(
    "disk-full",
    "On a full disk storing is an error, and what was acknowledged before is there.",
    incident="A JSON file rewritten in place on a full disk: the old history is cut off, and the new one not written.",
    needs=["files"],
)
def disk_full(kit: Kit) -> None:
    store, session = session_with_turns(kit, turns=5)
    largest = max((path.stat().st_size for path in _files(store.place)), default=0)
    # A file may grow by this much. A store whose files are small is full when none may be larger than a page.
    for room in (largest + 64 * 1024, 1024, 0):
        if refused := _refused_with(kit, store, room):
            kit.notes.append(f"with room for files of {room:,} bytes, {refused} of {FILLING} appends failed")
            store.take(Step("append", session, (kit.turn(),)))
            judge_later(kit, session)
            return
    raise NotOffered("it writes no file in the process that calls it: what has its files is another process")


def _refused_with(kit: Kit, store: Instance, room: int) -> int:
    """Append to a session with room for files of so many bytes. Returns how many appends were refused.

    Nothing is recorded: the record of the calls is a file of the same process.
    """
    session, turns = kit.session(), [kit.turn(), *(_padded(kit) for _ in range(FILLING))]
    store.take_unrecorded(Step("append", session, (turns[0],)))
    store.limit("fsize", room)
    job = Do(store.slot, (CallerSteps(store.name, tuple(Step("append", session, (turn,)) for turn in turns[1:])),))
    outcomes = kit.ask(store.worker, job, Done).outcomes[0]
    store.limit("fsize", None)
    read = kit.open("later").take_unrecorded(Step("read", session))
    kit.check(read.ok, f"the disk was full for a while, and reading raised {read.fault}", session=session)
    found: list[ReadMessage] = read.value
    acknowledged = [turns[0], *(turn for turn, outcome in zip(turns[1:], outcomes, strict=True) if outcome.ok)]
    # What was refused may be there all the same, but whole.
    contents = {seen.content for seen in found}
    there = [turn for turn in turns if turn in acknowledged or turn[0].content in contents]
    kit.same(found, there, f"the disk was full: {len(acknowledged)} turns were acknowledged", session=session)
    return sum(not outcome.ok for outcome in outcomes)


def _padded(kit: Kit) -> tuple[SentMessage, ...]:
    """Make a turn of 4 kB for each message, which no compression makes much smaller."""
    return tuple(
        SentMessage(sent.role, f"{sent.content} {b64encode(kit.dice.randbytes(3000)).decode()}") for sent in kit.turn()
    )


@registry.clause(
    "no-file-handles",
    "Without file handles left, reading and storing work or are errors; nothing is empty, and nothing is lost.",
    incident="except OSError: return []. Too many open files, and every conversation begins anew.",
    needs=["files"],
)
def no_file_handles(kit: Kit) -> None:
    store, session = session_with_turns(kit)
    store.limit("nofile", 0)
    steps = (Step("read", session), Step("append", session, (kit.turn(),)), Step("read", session))
    outcomes = store.run(*steps)
    for outcome in outcomes:
        kit.check(
            not (outcome.ok and outcome.value == []), "without file handles, a session of three turns read as empty"
        )
    beside = None
    try:
        beside = kit.open("B", beside=store)
    except JobFailed:
        pass  # it said so
    if beside is not None:
        read = beside.take_unrecorded(Step("read", session))  # there is no handle for a record either
        kit.check(
            not (read.ok and read.value == []), "opened without file handles, a session of three turns read as empty"
        )
    store.limit("nofile", None)
    judge_later(kit, session)


@registry.clause(
    "file-locked",
    "While somebody else holds the write lock, a turn waits or fails; it is not acknowledged and forgotten.",
    incident="database is locked, caught and ignored: under load every tenth turn is missing.",
    needs=["files"],
)
def file_locked(kit: Kit) -> None:
    store, session = session_with_turns(kit)
    databases = [path for path in _files(store.place) if files.is_sqlite(path)]
    if not databases:
        raise NotOffered("there is no SQLite file that could be locked")
    with files.Locks(databases) as locks:
        outcomes = attempt(
            kit, store, Step("append", session, (kit.turn(),)), Step("read", session), relieve=locks.release
        )
    check_in_time(kit, outcomes, "with the file locked")
    store.take(Step("read", session))
    judge_later(kit, session)


# --- garbage ---------------------------------------------------------------------------------------------------------


@registry.clause(
    "garbage",
    "Stored bytes that were overwritten are an error to whoever reads them: no shorter history, no other words.",
    incident="OpenAI Agents 0.24.0 skips corrupt rows in silence; pickle that fails to load comes back as [].",
    needs=["processes", "files|corrupt"],
)
def garbage(kit: Kit) -> None:
    if kit.offers("corrupt"):
        _overwritten(kit, b"")
        return
    # The first is no UTF-8, the second is, and ends whatever JSON string it is in.
    for byte in (b"\xff", b'"'):
        _overwritten(kit, byte)


def readable(kit: Kit, place: Path, session: str) -> list[ReadMessage]:
    """Read the session in another process before the damage. If that fails, a later error would prove nothing."""
    before = kit.open("before", at=place)
    found = before.read(session)
    before.close()
    return found


def _overwritten(kit: Kit, byte: bytes) -> None:
    session = kit.session()
    place = kit.place()
    before, marker = _three_turns(kit, place, session)
    if kit.offers("corrupt"):
        kit.ask(kit.worker(), FactoryHook("corrupt", str(place), session, kit.environment.urls), Ready)
    elif not files.overwrite(_files(place), marker.encode(), byte):
        _damaged_unread(kit)
        return
    if not _raises(kit, place, session, before, "one of {} messages was overwritten"):
        raise Untested("what was overwritten still comes back: another copy of it is kept elsewhere")


def _three_turns(kit: Kit, place: Path, session: str) -> tuple[list[ReadMessage], str]:
    """Store three turns, with a marker in the second, and close the store. Returns what is read, and the marker."""
    marker = f"a marker that is overwritten later: 0123456789abcdef {b64encode(kit.dice.randbytes(300)).decode()}"
    store = kit.open(at=place)
    store.append(session, kit.turn())
    turn = kit.turn()
    store.append(session, (SentMessage(turn[0].role, marker), *turn[1:]))
    store.append(session, kit.turn())
    before = readable(kit, place, session)
    store.close()
    return before, marker


def _damaged_unread(kit: Kit) -> None:
    """Damage the bytes that three turns added to the files of a store, for one that compresses or encrypts."""
    for part in (0.5, 0.25, 0.75):
        place, session = kit.place(), kit.session()
        kit.open("first", at=place).close()
        files.settle(_files(place))
        empty = files.contents(_files(place))
        before, _ = _three_turns(kit, place, session)
        damaged = files.damage(empty, _files(place), part)
        if not damaged:
            break
        if _raises(
            kit, place, session, before, f"16 bytes of {damaged} were overwritten, where a turn of {{}} messages is"
        ):
            kit.notes.append("its words are not in its files as they are: bytes that a turn had added were damaged")
            return
    raise Untested("no damage to its files changes what is read; give the factory a `corrupt` that damages a turn")


def _raises(kit: Kit, place: Path, session: str, before: list[ReadMessage], damage: str) -> bool:
    """Raise Broken if a later reader gets anything else than before, and no error. Returns whether it got an error."""
    later = kit.open_or_none("later", at=place)
    if later is None:
        return True  # it said so
    read = later.take(Step("read", session))
    kit.check(
        not read.ok or read.value == before,
        f"{damage.format(len(before))}, and reading gave {len(read.value or ())} messages and no error",
        session=session,
    )
    return not read.ok


@registry.clause(
    "half-a-file",
    "A file of which the end is missing is an error, never a shorter or an empty history.",
    incident="A copy that was interrupted, a restore from it: the store opens, and half of the users are new.",
    needs=["files"],
)
def half_a_file(kit: Kit) -> None:
    session, marker = kit.session(), "a marker in the file that is cut: 0123456789abcdef"
    store = kit.open()
    place = store.place
    for _ in range(40):
        store.append(session, kit.turn())
    store.close()
    files.settle(_files(place))
    earlier = files.contents(_files(place))
    store = kit.open("last", at=place)
    turn = kit.turn()
    store.append(session, (SentMessage(turn[0].role, marker), *turn[1:]))
    whole = readable(kit, place, session)
    store.close()
    if not files.cut(_files(place), marker.encode()) and not files.cut_changed(earlier, _files(place)):
        raise Untested("no file changes when a turn is stored, so none could be cut")
    _raises(kit, place, session, whole, "half of the file that the latest turn went to is missing; it had {} messages")


def _files(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file())
