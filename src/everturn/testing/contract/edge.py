"""Clauses of edge cases: unusual contents, sizes and session ids. Expiry is in expiry.py."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

from everturn.testing.kit.clause import ClauseRegistry, NotOffered, Untested
from everturn.testing.kit.equality import comes_back
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Outcome, Step

registry = ClauseRegistry("edge")
SLOWEST = 60.0  # seconds that 1,001 messages may take


def turn_of(kit: Kit, contents: Sequence[Any]) -> list[tuple[SentMessage, ...]]:
    """Make one turn for each content; where a call takes a pair, both messages have the content."""
    unit = kit.environment.opened.unit
    if unit == "pair":
        return [(SentMessage("user", content), SentMessage("assistant", content)) for content in contents]
    return [(SentMessage("user", content),) for content in contents]


def round_trip(kit: Kit, contents: Sequence[Any], story: str, *, may_refuse: bool = False, large: bool = False) -> None:
    """Store each content, and check that it comes back code point for code point. With `may_refuse` the store may raise
    instead, and must then store nothing. `large` contents are not left in the shared store."""
    store, session = (kit.open if large else kit.borrow)(), kit.session()
    accepted = 0
    kept: list[tuple[SentMessage, ...]] = []
    for content, turn in zip(contents, turn_of(kit, contents), strict=True):
        outcome = store.take_unrecorded(Step("append", session, (turn,)))
        if outcome.ok:
            kept.append(turn)
            accepted += 1
        elif not may_refuse:
            kit.broken(f"{story}: {shown(content)} was refused with {outcome.fault}", session=session)
    read = store.take_unrecorded(Step("read", session))
    kit.check(read.ok, f"{story}: reading it raised {read.fault}", session=session)
    kit.same(read.value, kept, story, session=session)
    if may_refuse:
        kit.notes.append(f"{accepted} of {len(contents)} were accepted, the others refused loudly")


def shown(content: Any) -> str:
    text = ascii(content)
    return text if len(text) <= 50 else f"{text[:40]}... ({len(text)} characters)"


# --- text ------------------------------------------------------------------------------------------------------------


@registry.clause(
    "white-space",
    "White space comes back as it went in: in front, behind, and where there is nothing else.",
    incident="strip() on the way in: code that a model had indented comes back broken.",
)
def white_space(kit: Kit) -> None:
    contents = [" a", "a ", "\ta\t", "  a  b  ", " ", "   ", "\t", "\n", "a\n", "\n\na\n\n", "\u00a0a\u2003", "\u200b"]
    round_trip(kit, contents, "content with white space")


@registry.clause(
    "line-ends",
    "Line ends come back as they went in: LF, CR LF, CR and all others.",
    incident="A file opened in text mode turns CR LF into LF: a signature over the message no longer matches.",
)
def line_ends(kit: Kit) -> None:
    contents = ["a\nb", "a\r\nb", "a\rb", "a\r\n\r\nb\n", "\r", "\r\n", "a\u2028b\u2029c", "a\x85b", "a\x0bb\x0cc"]
    round_trip(kit, contents, "content with line ends")


@registry.clause(
    "empty-content",
    "A message without words is a message: it is stored, and comes back.",
    incident="An assistant message that is only a tool call has no text; it is dropped, and the pair is broken.",
)
def empty_content(kit: Kit) -> None:
    round_trip(kit, ["before", "", "after"], "an empty content between two others", may_refuse=True)


@registry.clause(
    "unicode-forms",
    "Unicode comes back code point for code point, normalised or not.",
    incident="NFC on the way in: the user's file name, quoted by the model, is not the file's name any more.",
)
def unicode_forms(kit: Kit) -> None:
    contents = [
        "caf\u00e9",
        "cafe\u0301",
        "\ufb01",
        "\u212b",
        "\u1e9b\u0323",
        "\u0344",
        "A\u030a",
        "\uac00",
        "\u1100\u1161",
    ]
    round_trip(kit, contents, "content in several Unicode forms")


@registry.clause(
    "emoji-and-direction",
    "Emoji and right-to-left text come back whole, with their joiners and marks.",
    incident="utf8mb3: everything from the first emoji on is cut off, with a warning that nobody reads.",
)
def emoji_and_direction(kit: Kit) -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    contents = [
        "\U0001f600",
        f"a {family} b",
        "\U0001f1e8\U0001f1ed",
        "\u05e9\u05dc\u05d5\u05dd",
        "\u202eabc\u202c",
        "\U0010ffff",
    ]
    round_trip(kit, contents, "content with emoji and right-to-left text")


@registry.clause(
    "nul",
    "Text with NUL comes back whole, or is refused.",
    incident="A C string somewhere on the way: the message ends at the NUL, and so does the tool's output.",
)
def nul(kit: Kit) -> None:
    round_trip(kit, ["a\0b", "\0", "a\0", "\0a", "\x01\x02\x1b[0m\x7f"], "content with NUL", may_refuse=True)


@registry.clause(
    "surrogates",
    "Half a surrogate pair comes back as it went in, or is refused: never as something else.",
    incident="LangGraph serde: a lone surrogate becomes '?' (langgraph#6970, #7498).",
)
def surrogates(kit: Kit) -> None:
    round_trip(kit, ["\ud800", "a\udc00b", "\udfff\ud800", "fine"], "content with lone surrogates", may_refuse=True)


@registry.clause(
    "looks-like-data",
    "Text that looks like JSON, a number or a template comes back as text.",
    incident="json.loads on whatever begins with a brace: the user's example config comes back as a dict.",
)
def looks_like_data(kit: Kit) -> None:
    contents = ['{"role": "system"}', "[]", "null", "true", "12", "1e3", "007", '"quoted"', "{name}", "%s %d", "${x}"]
    contents += ["'; DROP TABLE messages; --", "b'x'", "None", "\\n", "\\u0041", "<b>&amp;</b>", "0x1F", "nan"]
    round_trip(kit, contents, "text that looks like data")


@registry.clause(
    "equal-messages",
    "Equal messages in a row are all kept.",
    incident="INSERT OR IGNORE with a key made of the content: of three times yes, one is left.",
)
def equal_messages(kit: Kit) -> None:
    round_trip(kit, ["yes"] * 5 + ["no", "yes", "yes"], "equal messages in a row")


# --- JSON ------------------------------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = "core"
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


ODD_VALUES: dict[str, Any] = {
    "NaN": math.nan,
    "infinity": math.inf,
    "minus zero": -0.0,
    "2**53 + 1": 2**53 + 1,
    "2**63": 2**63,
    "2**64 + 1": 2**64 + 1,
    "10**30": 10**30,
    "a tenth": 0.1,
    "the smallest float": 5e-324,
    "1 and true": [1, True, 1.0, 0, False],
    "null": [None, {"a": None}],
    "an empty key": {"": 1, " ": 2},
    "20 levels": nested(20),
    "150 levels": nested(150),
    "250 levels": nested(250),
}


@registry.clause(
    "odd-json",
    "NaN, large integers, deep nesting and other odd JSON come back equal, or are refused.",
    incident="NaN becomes null, 2**63 becomes a float: a score and an id change on their way through the store.",
    needs=["fields"],
)
def odd_json(kit: Kit) -> None:
    store = kit.borrow()
    judged = refused = 0
    for name, value in ODD_VALUES.items():
        session = kit.session()
        turn = (SentMessage("user", name, {"metadata": {"value": value}}),)
        if not store.take_unrecorded(Step("append", session, (turn,))).ok:
            refused += 1
            after = store.take_unrecorded(Step("read", session))
            kit.check(after.ok and after.value == [], f"{name} was refused, and yet {after}", session=session)
            continue
        read = store.take_unrecorded(Step("read", session))
        kit.check(read.ok, f"{name} was stored, and reading it raised {read.fault}", session=session)
        kit.check(len(read.value) == 1, f"{name} was stored, and {len(read.value)} messages came back", session=session)
        if "metadata" in read.value[0].fields:
            judged += 1
            found = read.value[0].fields["metadata"]
            kit.check(
                comes_back({"value": value}, found), f"{name} went in as {value!r:.80} and came back as {found!r:.80}"
            )
    if not judged and not refused:
        raise NotOffered("returned messages carry no metadata")
    kit.notes.append(f"{judged} of {len(ODD_VALUES)} came back, {refused} were refused loudly")


# --- sizes -----------------------------------------------------------------------------------------------------------


@registry.clause(
    "sizes",
    "Messages of any size to 1 MiB come back whole: one more than each power of two.",
    incident="VARCHAR(65535): a long tool result is cut in the middle of its JSON.",
)
def sizes(kit: Kit) -> None:
    exponents = range(4, 21) if not kit.quick else (8, 12, 15, 16, 20)
    contents = [filler(2**exponent + 1, f"{exponent}:") for exponent in exponents]
    round_trip(kit, contents, "content of a little more than a power of two", may_refuse=True, large=True)


def filler(length: int, start: str) -> str:
    """Make text of this length, without repetition, so that a missing piece shows."""
    parts: list[str] = [start]
    have = len(start)
    number = 0
    while have < length:
        parts.append(f"{number:x} ")
        have += len(parts[-1])
        number += 1
    return "".join(parts)[:length]


@registry.clause(
    "large-turn",
    "A turn of 1,000 messages is stored as a whole.",
    incident="mem0 2.2.1: a batch of 30 keeps the oldest 10.",
    needs=["lists"],
)
def large_turn(kit: Kit) -> None:
    store = kit.open()
    for messages in (1009, 1000, 500, 200, 100, 50, 20, 10, 5, 2):  # 1009: no multiple of a batch
        session, turn = kit.session(), kit.turn(messages)
        outcome = store.take(Step("append", session, (turn,)))
        kept = [turn] if outcome.ok else []
        kit.same(store.read(session), kept, f"a turn of {messages:,} messages {ended(outcome)}", session=session)
        if outcome.ok:
            break
        kit.notes.append(f"a turn of {messages:,} messages {ended(outcome)}")


def ended(outcome: Outcome) -> str:
    return "was stored" if outcome.ok else f"was refused with {outcome.fault}"


def gives_up(kit: Kit) -> float:
    """Return when to give up on 1,001 messages, so that the next clauses get their time."""
    now = time.monotonic()
    return now + max(4 * (kit.until - now), SLOWEST)


@registry.clause(
    "long-history",
    "A history past 1,000 messages comes back whole, with both its ends.",
    incident="A scan with a default page of 1,000 (or of 100): the oldest, or the newest, are left out in silence.",
    weight=2,
)
def long_history(kit: Kit) -> None:
    store, session = kit.open(), kit.session()
    # A checkpointer writes the whole state each time: larger turns, so that it is not the kit that is quadratic.
    whole = kit.offers("whole_states")
    grows = kit.environment.opened.unit == "turn" and not whole
    goal = 10_001 if grows or not (kit.quick or whole) else 1_001
    turns: list[tuple[SentMessage, ...]] = []
    messages = 0
    given_up = gives_up(kit)
    while messages < goal and (messages < 1_001 or kit.time_left()):
        if time.monotonic() > given_up:
            raise Untested(f"only {messages:,} messages could be stored in the time for it; give a larger --budget")
        # The first thousand in many turns. The others go in large ones: it is their number that matters.
        large = 25 if whole else 71 if grows and messages >= 1_001 else None
        batch = [kit.turn(large) for _ in range(20)]
        outcomes = store.run(*(Step("append", session, (turn,)) for turn in batch))
        refused = next((number for number, outcome in enumerate(outcomes) if not outcome.ok), None)
        turns += batch[:refused]
        messages += sum(map(len, batch[:refused]))
        if refused is not None:
            # A limit of the store. What it took before is there, and other sessions go on.
            kit.notes.append(f"after {messages:,} messages, the next turn {ended(outcomes[refused])}")
            turns += [turn for turn, later in zip(batch[refused:], outcomes[refused:], strict=True) if later.ok]
            store.append(kit.session(), kit.turn())
            break
    kit.notes.append(f"{messages:,} messages")
    kit.same(store.read(session), turns, f"{messages:,} messages were stored", session=session)


# --- names -----------------------------------------------------------------------------------------------------------

STRANGE_IDS = (
    "",
    " ",
    ".",
    "..",
    "/",
    "a\0b",
    "\ud800",
    "\u202e",
    "\U0001f600",
    "CON",
    "nul.txt",
    "-rf",
    "--",
    "%00",
    "%2e%2e%2f",
    "a" * 255,
    "a" * 256,
    "a" * 5000,
    "\u00e9" * 300,
    "SELECT * FROM messages",
    "{}",
    "everturn kit",
    "\r\nSET x 1\r\n",
)


@registry.clause(
    "strange-session-ids",
    "Whatever a session id is, it is refused, or it is a session like any other.",
    incident="An id from a URL, longer than the column: cut to 64 characters, it is somebody else's.",
)
def strange_session_ids(kit: Kit) -> None:
    store = kit.open()
    kept: dict[str, list[tuple[SentMessage, ...]]] = {}
    for name in STRANGE_IDS:
        turn = kit.turn()
        if store.take_unrecorded(Step("append", name, (turn,))).ok:
            kept[name] = [turn]
    ordinary, turn = kit.session(), kit.turn()
    store.append(ordinary, turn)
    kept[ordinary] = [turn]
    _read_back(kit, store, kept)
    kit.notes.append(f"{len(kept) - 1} of {len(STRANGE_IDS)} ids were accepted")


def _read_back(kit: Kit, store: Instance, kept: dict[str, list[tuple[SentMessage, ...]]]) -> None:
    for name, turns in kept.items():
        outcome = store.take_unrecorded(Step("read", name))
        kit.check(outcome.ok, f"session {shown(name)} took a turn, and reading it raised {outcome.fault}")
        kit.same(outcome.value, turns, f"session {shown(name)} took a turn", session=shown(name))


@registry.clause(
    "ids-stay-inside",
    "No session id makes a store write outside of the place it was given.",
    incident="A history per file, named after the session: '../../etc/cron.d/x' is a session id, too.",
    needs=["files"],
)
def ids_stay_inside(kit: Kit) -> None:
    place = kit.place()
    store = kit.open(at=place)
    before = _outside(place)
    for name in ("../escaped", "../../escaped", "a/../../escaped", str(place.parent / "escaped"), "..\\escaped"):
        store.take_unrecorded(Step("append", name, (kit.turn(),)))
    store.append(kit.session(), kit.turn())  # if all of these are refused
    store.close()
    found = sorted(_outside(place) - before)
    kit.check(not found, f"session ids made files outside of the store's directory: {found}")


def _outside(place: Any) -> set[str]:
    folders: Iterable[Any] = (place.parent, place.parent.parent)
    return {str(path) for folder in folders for path in folder.iterdir() if "escaped" in path.name}
