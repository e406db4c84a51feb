"""Clauses of removal, one caller at a time: clear, replace, pop and trim."""

from __future__ import annotations

from everturn.testing.contract.sequential import TOOL_CALL, session_with_turns
from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("sequential")


@registry.clause(
    "clear",
    "Clearing a session leaves it empty, and ready for the next turn.",
    incident="A clear that removes the rows and keeps a cached list: the next prompt has the old conversation in it.",
    needs=["clear"],
)
def clear(kit: Kit) -> None:
    store, session, _ = session_with_turns(kit, 3)
    turn = kit.turn()
    store.clear(session)
    kit.same(store.read(session), [], "the session was cleared", session=session)
    store.append(session, turn)
    kit.same(store.read(session), [turn], "one turn was stored after clearing", session=session)


@registry.clause(
    "clear-absent",
    "Clearing a session that is empty, or never was, makes nothing and breaks nothing.",
    incident="A reset button pressed twice takes the store down.",
    needs=["clear"],
)
def clear_absent(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit)
    nobody = kit.session()
    store.take(Step("clear", nobody))
    kit.same(store.read(nobody), [], "a session that never was was cleared", session=nobody)
    kit.same(store.read(session), turns, "another session was cleared", session=session)
    turn = kit.turn()
    store.append(nobody, turn)
    kit.same(store.read(nobody), [turn], "one turn was stored after that", session=nobody)
    store.clear(session)
    kit.same(store.read(session), [], "it was cleared", session=session)


@registry.clause(
    "clear-all",
    "clear_all leaves no session with anything in it.",
    incident="A privacy request: everything was cleared, and the sessions past the first page were not.",
    needs=["clear_all", "private"],
)
def clear_all(kit: Kit) -> None:
    store = kit.open()
    sessions = [kit.session() for _ in range(120)]
    store.run(*(Step("append", session, (kit.turn(),)) for session in sessions))
    store.call("clear_all")
    for session, outcome in zip(sessions, store.run(*(Step("read", one) for one in sessions)), strict=True):
        kit.check(outcome.ok and outcome.value == [], f"after clear_all, {session} has {outcome}", session=session)


@registry.clause(
    "replace",
    "Setting a session's messages replaces what was there.",
    incident="LlamaIndex 0.14.25: SQLiteChatStore.set_messages appends instead of replacing.",
    needs=["replace"],
)
def replace(kit: Kit) -> None:
    store, session, _ = session_with_turns(kit, 3)
    turn, later = kit.turn(), kit.turn()
    store.call("replace", session, turn)
    kit.same(store.read(session), [turn], "its messages were replaced", session=session)
    store.append(session, later)
    kit.same(store.read(session), [turn, later], "one turn was stored after replacing", session=session)


@registry.clause(
    "replace-with-nothing",
    "Replacing a session's messages by none leaves it empty, or is refused and changes nothing.",
    incident="`if not messages: return`, taken over from append: a reset by set_messages(key, []) resets nothing.",
    needs=["replace"],
    since=2,
)
def replace_with_nothing(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit, 2)
    outcome = store.take(Step("replace", session, ((),)))
    left = [] if outcome.ok else turns
    ended = "done" if outcome.ok else "refused"
    kit.same(store.read(session), left, f"replacing all messages by none was {ended}", session=session)
    turn = kit.turn()
    store.append(session, turn)
    kit.same(store.read(session), [*left, turn], "a turn was stored after that", session=session)


@registry.clause(
    "replace-back",
    "Setting messages to what they were before somebody else changed them sets them again.",
    incident="'Nothing has changed, skip the write': compared with what this worker wrote last, not with the store.",
    needs=["replace"],
    since=2,
)
def replace_back(kit: Kit) -> None:
    first = kit.borrow("A")
    second = kit.borrow("B") if kit.offers("processes") else first
    session, mine, theirs, later = kit.session(), kit.turn(), kit.turn(), kit.turn()
    first.append(session, kit.turn())
    changes = [Step("replace", session, (theirs,)), Step("append", session, (later,))]
    changes += [Step("clear", session)] if kit.offers("clear") else []
    for change in changes:
        # Unrecorded: the same messages are written twice.
        for store, step in ((first, Step("replace", session, (mine,))), (second, change), (first, None)):
            outcome = store.take_unrecorded(step or Step("replace", session, (mine,)))
            kit.check(outcome.ok, f"replacing messages, or {change.op}, raised {outcome.fault}", session=session)
        story = f"its messages were set, {second.name} called {change.op}, and {first.name} set the same ones again"
        kit.same(second.take_unrecorded(Step("read", session)).value or [], [mine], story, session=session)


@registry.clause(
    "pop",
    "Taking back the last message takes exactly the last one, and returns it.",
    incident="A runner rewinds a failed step and takes the user's question along.",
    needs=["pop"],
)
def pop(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit, 3)
    messages = [sent for turn in turns for sent in turn]
    while messages:
        last = messages.pop()
        taken = store.call("pop", session)
        kit.check(
            taken is not None and taken.content == last.content,
            f"the last message is {last.content!r}; what was taken is {taken and taken.content!r}",
            session=session,
        )
        kit.same(store.read(session), [messages], "the last message was taken back", session=session)
    store.take(Step("pop", session))
    turn = kit.turn()
    store.append(session, turn)
    kit.same(store.read(session), [turn], "all were taken back, then one turn was stored", session=session)


def trimmed(kit: Kit, store: Instance, session: str, messages: list[SentMessage], most: int) -> list[SentMessage]:
    """Trim, and check that a suffix of at most so many messages is left. Returns it."""
    store.trim(session, most)
    found = [(seen.role, seen.content) for seen in store.read(session)]
    wanted = [(sent.role, sent.content) for sent in messages]
    fits = len(found) <= most or (kit.offers("trim_keeps_prompts") and len(found) <= len(messages))
    kit.check(
        fits and found == wanted[len(wanted) - len(found) :],
        f"trimmed to {most} of {len(wanted)}, it holds {[content for _, content in found]}, which is no suffix of at "
        f"most {most} of {[content for _, content in wanted]}",
        session=session,
    )
    return messages[len(messages) - len(found) :]


@registry.clause(
    "trim",
    "Trimming keeps the latest messages, at most as many as were asked for, in order.",
    incident="mem0 2.2.1 keeps the oldest 10 of a batch of 30: the agent remembers the greeting and forgets the order.",
    needs=["trim"],
)
def trim(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit, 8)
    messages = [sent for turn in turns for sent in turn]
    size = len(turns[0])
    left = trimmed(kit, store, session, messages, 5 * size)
    kit.check(left, "nothing at all was kept", session=session)
    left = trimmed(kit, store, session, left, 2 * size)
    kit.check(left, "nothing at all was kept", session=session)


@registry.clause(
    "trim-to-more",
    "Trimming to more than there is keeps everything.",
    incident="A negative slice: a short conversation is trimmed to nothing.",
    needs=["trim"],
)
def trim_to_more(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit, 2)
    for most in (len(turns) * len(turns[0]), 50):
        store.trim(session, most)
        kit.same(store.read(session), turns, f"it was trimmed to {most}", session=session)
    nobody = kit.session()
    store.take(Step("trim", nobody, (5,)))
    kit.same(store.read(nobody), [], "a session that never was was trimmed", session=nobody)


@registry.clause(
    "trim-to-nothing",
    "Trimming to 0 keeps nothing, or the last turn alone, or is refused and changes nothing.",
    incident="`messages[-0:]` is the whole list: a limit of 0, for privacy, kept everything.",
    needs=["trim"],
    since=2,
)
def trim_to_nothing(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit, 3)
    store.trim(session, sum(map(len, turns)))  # a trim that is always refused shows nothing
    outcome = store.take(Step("trim", session, (0,)))
    found = [seen.content for seen in store.read(session)]
    wanted = [sent.content for turn in turns for sent in turn]
    if not outcome.ok:
        kit.check(found == wanted, f"trim to 0 was refused, and it holds {found}, not {wanted}", session=session)
        return
    last = [sent.content for sent in turns[-1]]
    kit.check(found in ([], last), f"trimmed to 0, it holds {found}", session=session)
    turn = kit.turn()
    store.append(session, turn)
    found = [seen.content for seen in store.read(session)][len(found) :]
    kit.check(found == [sent.content for sent in turn], f"a turn after a trim to 0: {found}", session=session)


@registry.clause(
    "trim-then-append",
    "A turn that is stored after a trim comes last, and nothing that was trimmed comes back with it.",
    incident="Positions counted from the rows that are left: the next turn gets the number of an old one.",
    needs=["trim"],
)
def trim_then_append(kit: Kit) -> None:
    store, session, turns = session_with_turns(kit, 6)
    left = trimmed(kit, store, session, [sent for turn in turns for sent in turn], 2 * len(turns[0]))
    later = kit.turns(3)
    for turn in later:
        store.append(session, turn)
    kit.same(store.read(session), [left, *later], "three turns were stored after a trim", session=session)


@registry.clause(
    "trim-keeps-prompts",
    "Trimming keeps system messages, and never parts a tool call from its result.",
    incident="letta#3250, agno#9372: a prompt that begins with a tool result is refused, and the session is bricked.",
    needs=["trim_keeps_prompts", "fields"],
)
def trim_keeps_prompts(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    system, call = SentMessage("system", "be brief"), SentMessage("assistant", "looking", {"tool_calls": [TOOL_CALL]})
    result, answer = SentMessage("tool", "found it", {"tool_call_id": "call-1"}), SentMessage("assistant", "here it is")
    for turn in ((system,), *kit.turns(4), (call,), (result,), (answer,)):
        store.append(session, turn)
    store.trim(session, 3)
    kit.same(
        store.read(session),
        [[system, answer]],
        "trimmed to 3, with room for the tool result and not for its call",
        session=session,
    )
