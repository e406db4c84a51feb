"""Clauses of names: session ids that a store's own encoding, columns or keys could take for one another.

isolation.py has ids that differ by case, prefix, wildcard and the like. A store may refuse any of these ids, loudly.
"""

from __future__ import annotations

from collections.abc import Sequence

from everturn.testing.contract.edge import shown
from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance, succeeded
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import CallerSteps, Do, Done, Opened, Outcome, Step

registry = ClauseRegistry("sequential", since=2)

ENCODED = (
    *("a/b", "a%2Fb", "a%2fb", "a%252Fb", "a b", "a%20b", "a+b", "a%2Bb", "a&#47;b", "a&amp;b", "a&b", "a=b"),
    *("a\\x2fb", "a\\u002fb", "YS9i", "61 2f 62", "a__b", "a_b", "a~b", "a%00b", "a%", "a%2"),
)
LONG = tuple(
    f"{'x' * length}{end}" for length in (63, 64, 127, 128, 254, 255, 511, 1000) for end in ("", "a", "b", "\u00e9")
)
COME_AGAIN = 30  # sessions, those used longest ago
SURROGATES = ("\ud800", "\ud801", "\udfff", "?", "\ufffd", "a\ud800", "a\udc00", "a?", "a\ufffd", "a", "\\ud800")
ENDINGS = (
    *(":archive", ":archived", ":meta", ":messages", ":history", ":snapshots", ":snapshot:1", ":keys", ":lock"),
    *(":version", ":seq", ":undo", ":summary", ":state", ":ttl", ":index", ":tmp", "_archive", "-archive"),
    *(".json", ".tmp", ".bak", ".lock", ".db", ".jsonl", "/archive", "/messages", "#1", "@1"),
)


UUID, URL = "6f9619ff-8b86-4d11-b42d-00c04fc964ff", "https://example.org/a"
SPELLINGS = (
    *(UUID, UUID.upper(), UUID.replace("-", ""), f"{{{UUID}}}", f"urn:uuid:{UUID}"),
    *("kim@example.org", "Kim@example.org", "kim@EXAMPLE.org", "kim+home@example.org", "k.im@example.org"),
    *("mailto:kim@example.org", "Kim <kim@example.org>", "+49 30 123456", "+4930123456", "004930123456", "030/123456"),
    *("2026-03-01", "2026-3-1", "20260301", "2026-03-01T00:00", "2026-03-01T00:00Z", "2026-03-01T00:00+00:00"),
    *(URL, f"{URL}/", URL.upper(), URL.replace("https", "http"), URL.replace(".org", ".org:443"), f"{URL}#", f"{URL}?"),
    *("0x10", "16", "16.", "1_6", "\u0661\u0666", "\uff11\uff16", "XVI", "10", "1.6e1", "#16", "@16", "id-16", "ID16"),
    *("a", "b'a'", '"a"', "['a']", '{"id": "a"}', "a,", "the-a", "a-copy", "a (1)", "a@v2"),
)


def take(kit: Kit, store: Instance, *steps: Step) -> tuple[Outcome, ...]:
    """Take steps without recording them: not every id can stand in a history."""
    job = Do(store.slot, (CallerSteps(store.name, steps),))
    return kit.ask(store.worker, job, Done).outcomes[0]


def fill(kit: Kit, store: Instance, names: Sequence[str], turns: int = 2) -> dict[str, list[tuple[SentMessage, ...]]]:
    """Store turns in each session, one after the other. Returns those whose ids were not refused."""
    takes_turns(kit, store)
    written: dict[str, list[tuple[SentMessage, ...]]] = {name: [] for name in names}
    for _ in range(turns):
        fresh = {name: kit.turn() for name in written}
        outcomes = take(kit, store, *(Step("append", name, (turn,)) for name, turn in fresh.items()))
        for (name, turn), outcome in zip(fresh.items(), outcomes, strict=True):
            if outcome.ok:
                written[name].append(turn)
            else:
                del written[name]
    kit.notes.append(f"{len(written)} of {len(names)} ids were accepted")
    return written


def takes_turns(kit: Kit, store: Instance) -> None:
    """Store a turn in an ordinary session, and read it. If all odd ids are refused, it is that which is shown."""
    session, turn = kit.session(), kit.turn()
    store.append(session, turn)
    kit.same(store.read(session), [turn], "one turn was stored", session=session)


def unharmed(kit: Kit, store: Instance, written: dict[str, list[tuple[SentMessage, ...]]], story: str) -> None:
    """Raise Broken unless every session holds what was written to it."""
    outcomes = take(kit, store, *(Step("read", name) for name in written))
    for (name, turns), outcome in zip(written.items(), outcomes, strict=True):
        kit.check(outcome.ok, f"{story}; then reading {shown(name)} raised {outcome.fault}")
        kit.same(outcome.value, turns, f"session {shown(name)}: {story}", session=shown(name))


def apart(kit: Kit, names: Sequence[str], kind: str) -> None:
    """Show that sessions of these names share nothing, also when one of them is cleared."""
    store = kit.open()
    written = fill(kit, store, names)
    unharmed(kit, store, written, f"ids that {kind}")
    if not kit.offers("clear"):
        return
    for name in kit.dice.sample(sorted(written), min(3, len(written))):
        succeeded((Step("clear", shown(name)),), take(kit, store, Step("clear", name)))
        written[name] = []
        unharmed(kit, store, written, f"ids that {kind}, and {shown(name)} was cleared")


@registry.clause(
    "isolation-of-encoded-ids",
    "Ids that would be equal after decoding (percent signs, plus signs, entities, escapes) are different sessions.",
    incident="An id from a URL is decoded twice on one path and once on another: two customers share a conversation.",
)
def isolation_of_encoded_ids(kit: Kit) -> None:
    apart(kit, ENCODED, "are equal after some decoding")


@registry.clause(
    "isolation-of-spellings",
    "Ids that are two spellings of one UUID, address, number, date or URL are different sessions, or refused.",
    incident="A column of type uuid: an id without hyphens is the session of the one that has them.",
)
def isolation_of_spellings(kit: Kit) -> None:
    apart(kit, SPELLINGS, "are spellings of one thing")


@registry.clause(
    "isolation-of-long-ids",
    "Ids that differ only beyond 64, 128, 255 or more characters are different sessions, or refused.",
    incident="A column of 64 characters that cuts in silence: ids with a long tenant prefix are all one session.",
)
def isolation_of_long_ids(kit: Kit) -> None:
    apart(kit, LONG, "have the same beginning")


@registry.clause(
    "isolation-of-surrogates",
    "Ids that hold half a surrogate pair are different sessions, or refused.",
    incident="encode(errors='replace'): every broken id of a mobile client is the session '?'.",
)
def isolation_of_surrogates(kit: Kit) -> None:
    apart(kit, SURROGATES, "hold half a surrogate pair, or what it is replaced by")


@registry.clause(
    "isolation-of-many",
    "However many sessions there are, each of them is its own.",
    incident="A file for each four digits of a hash: with a thousand users, some of them share a conversation.",
)
def isolation_of_many(kit: Kit) -> None:
    store = kit.open()
    # One object per session may mean a connection for each. Of a thousand hashes of two bytes some are equal.
    number = 60 if "session_id" in kit.environment.offer.options else 300 if kit.quick else 1_100
    base = kit.session()
    written = fill(kit, store, [f"{base}-{index}" for index in range(number)], turns=1)
    unharmed(kit, store, written, f"{number} sessions have a turn each")
    again = {name: [*written[name], kit.turn()] for name in list(written)[:COME_AGAIN]}
    outcomes = take(kit, store, *(Step("append", name, (turns[-1],)) for name, turns in again.items()))
    kept = {name: turns for (name, turns), outcome in zip(again.items(), outcomes, strict=True) if outcome.ok}
    unharmed(kit, store, kept, f"it goes on after a turn in each of {number} sessions")


@registry.clause(
    "ids-of-the-store",
    "An id that looks like a name of the store's own (`<session>:archive`) is a session like any other.",
    incident="A trim moves old messages to '<session>:archive': a user of that name reads them, and can delete them.",
)
def ids_of_the_store(kit: Kit) -> None:
    store = kit.open()
    base = kit.session()
    names = [
        base,
        *(f"{base}{ending}" for ending in ENDINGS),
        *(f"{word}:{base}" for word in ("archive", "lock", "meta")),
    ]
    written = fill(kit, store, names)
    written.setdefault(base, [])
    for step in _every_change(kit, base):
        if step is not None:
            kit.check((done := take(kit, store, step)[0]).ok, f"{step.op} of {base!r} raised {done.fault}")
    state = take(kit, store, Step("read", base))[0]
    others = {name: turns for name, turns in written.items() if name != base}
    unharmed(kit, store, others, f"everything that can be done was done to {base!r}")
    snapshot = take(kit, store, Step("save_snapshot", base))[0] if kit.offers("save_snapshot") else None
    for name in others:
        for step in _every_change(kit, name):
            if step is not None:
                take(kit, store, step)
    again = take(kit, store, Step("read", base))[0]
    kit.check(again.ok and again.value == state.value, f"{base!r} is not what it was, after changes to its neighbours")
    if snapshot is not None and snapshot.ok:
        back = take(kit, store, Step("rollback", base, (snapshot.value,)), Step("read", base))
        kit.check(
            back[0].ok and back[1].ok and back[1].value == state.value,
            f"{base!r} cannot be rolled back, after changes to its neighbours: {back[0].fault or back[1].fault or ''}",
        )


def _every_change(kit: Kit, name: str) -> list[Step | None]:
    """List every change that is offered: appends with and without a key, a trim, a snapshot, a clear."""
    first, second = kit.turn(), kit.turn()
    return [
        Step("append", name, (first,), {"key": "k"}) if kit.offers("key") else None,
        Step("save_snapshot", name) if kit.offers("save_snapshot") else None,
        Step("append", name, (second,)),
        Step("trim", name, (len(second),)) if kit.offers("trim") else None,
        Step("clear", name) if kit.offers("clear") else None,
        Step("append", name, (kit.turn(),)),
    ]


@registry.clause(
    "two-stores",
    "Two stores that one process has opened at different places share nothing, also sessions of one name.",
    incident="A cache of the module by the session's name alone: a worker for two tenants shows one the other's chat.",
    needs=["private"],
)
def two_stores(kit: Kit) -> None:
    first = kit.open("A", at=kit.place())
    place = kit.place()
    worker = first.worker
    slot = "the other place"
    second = kit.adopt(worker, slot, place, "B", kit.ask(worker, kit.opening(slot, place), Opened))
    session = kit.session()
    written: dict[str, list[tuple[SentMessage, ...]]] = {"A": [], "B": []}
    for round_ in range(3):
        for store in (first, second):
            written[store.name].append(kit.turn())
            (outcome,) = take(kit, store, Step("append", session, (written[store.name][-1],)))
            kit.check(outcome.ok, f"with two stores open in the process, an append raised {outcome.fault}")
            for one in (first, second):
                (read,) = take(kit, one, Step("read", session))
                kit.check(read.ok, f"with two stores open in the process, a read raised {read.fault}")
                story = f"store {one.name} of two in one process, round {round_ + 1}"
                kit.same(read.value, written[one.name], story, session=session)
    if kit.offers("clear"):
        take(kit, first, Step("clear", session))
        (read,) = take(kit, second, Step("read", session))
        kit.same(read.value or [], written["B"], "store A of two in one process was cleared", session=session)
