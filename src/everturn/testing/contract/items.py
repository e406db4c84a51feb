"""Clauses of items in namespaces (LangGraph's BaseStore): namespaces, searches, deletions, many writers, expiry."""

from __future__ import annotations

import time

from everturn.testing.contract.expiry import GRACE, TTL
from everturn.testing.kit.clause import ClauseRegistry, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.workers.messages import Done, Step

registry = ClauseRegistry("sequential", since=2)

# Neighbours in the eyes of LIKE, GLOB, a regular expression, a file system or a join without separators.
NAMESPACES = (
    *(("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("abc",), ("A",), ("b",), ("a", "bc"), ("a b",)),
    *(("a.b",), ("a.b", "c"), ("a", "b.c"), ("a|b", "c"), ("a", "b|c"), ("a:b", "c"), ("a/b", "c"), ("a", ""), ("",)),
    *(("a_",), ("a%",), ("a*",), ("?",), ("[ab]",), ("a/b",), ("a:b",), ("a|b",), ("a\\",)),
)


@registry.clause(
    "item-namespaces",
    "An item is found in its own namespace alone, and a search finds all items below its prefix and no others.",
    incident="prefix LIKE 'user1%': the memories of user10 to user19 are in the prompt of user1.",
    needs=["items"],
)
def item_namespaces(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    written: dict[tuple[str, ...], str] = {}
    for number, labels in enumerate(NAMESPACES):
        if store.take(Step("put_item", session, (labels, "k", f"v{number}"))).ok:  # a label may be refused
            written[labels] = f"v{number}"
    if len(written) < 4:
        raise Untested(f"of {len(NAMESPACES)} namespaces all but {len(written)} were refused")
    gone = ("a",)
    for removed in (False, True):
        if removed and gone in written:
            store.call("delete_item", session, gone, "k")
            del written[gone]
        for labels, value in written.items():
            found = store.call("item", session, labels, "k")
            kit.check(found == value, f"{labels} has {found!r}, not {value!r}", session=session)
        for prefix in ((), gone, *written):
            wanted = sorted((one, "k", value) for one, value in written.items() if one[: len(prefix)] == prefix)
            searched = sorted((tuple(one), key, value) for one, key, value in store.call("items", session, prefix, 50))
            kit.check(searched == wanted, f"below {prefix} are {wanted}; a search found {searched}", session=session)


@registry.clause(
    "item-search",
    "Pages of a search have every item once, with its latest value.",
    incident="Pages by offset without an order: of 60 memories the second page repeats ten and leaves ten out.",
    needs=["items"],
)
def item_search(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    values = {f"k{number}": f"v{number}" for number in range(60)}
    store.run(*(Step("put_item", session, (("a",), key, value)) for key, value in values.items()))
    values |= {f"k{number}": f"new {number}" for number in range(0, 60, 7)}
    store.run(*(Step("put_item", session, (("a",), key, value)) for key, value in values.items() if value[0] == "n"))
    for page in (7, 10, 60, 1_000):
        found = [(key, value) for _, key, value in store.call("items", session, ("a",), page)]
        repeated = len(found) - len(dict(found))
        kit.check(not repeated, f"in pages of {page}, {repeated} of 60 items came twice", session=session)
        kit.check(dict(found) == values, f"in pages of {page}, {len(found)} of 60 came, or old values", session=session)


@registry.clause(
    "deleted-items",
    "An item that was deleted is gone from get and search, in every process, until it is put again.",
    incident="A deletion that leaves the vector index alone: the address that a user took back is found for months.",
    needs=["items"],
)
def deleted_items(kit: Kit) -> None:
    store, session = kit.borrow(), kit.session()
    other = kit.borrow("other") if kit.offers("processes") else store
    for key in ("kept", "gone"):
        store.call("put_item", session, ("a",), key, f"{key} 1")
    kit.check(other.call("item", session, ("a",), "gone") == "gone 1", "another process has no item", session=session)
    store.call("delete_item", session, ("a",), "gone")
    store.call("delete_item", session, ("a",), "never there")
    for who in (store, other):
        found = who.call("item", session, ("a",), "gone")
        kit.check(found is None, f"{who.name}: a deleted item is still there: {found!r}", session=session)
        left = [key for _, key, _ in who.call("items", session, ("a",), 50)]
        kit.check(left == ["kept"], f"{who.name}: after a deletion a search finds {left}", session=session)
    store.call("put_item", session, ("a",), "gone", "gone 2")
    for who in (store, other):
        found = who.call("item", session, ("a",), "gone")
        kit.check(found == "gone 2", f"{who.name}: an item that was put again is {found!r}", session=session)


@registry.clause(
    "items-at-once",
    "Items that several processes put into one namespace at once are all kept; of one item, one of the values.",
    incident="A namespace in one file that is read, extended and written back: of four workers, one's are left.",
    needs=["items", "processes"],
)
def items_at_once(kit: Kit) -> None:
    stores = [kit.borrow(f"writer {number}") for number in range(1, 5)]
    reader = kit.borrow("reader")
    for _ in range(3 if kit.quick else 10):
        session = kit.session()
        for number, store in enumerate(stores):
            own = [Step("put_item", session, (("a",), f"k{number}.{step}", f"v{number}.{step}")) for step in range(4)]
            store.worker.send(store.job(*own, Step("put_item", session, (("a",), "shared", f"v{number}"))))
        kept: dict[str, str] = {}
        for number, store in enumerate(stores):
            outcomes = kit.report(store.worker, Done).outcomes[0]
            kept |= {f"k{number}.{step}": f"v{number}.{step}" for step, one in enumerate(outcomes[:4]) if one.ok}
        if not kept:
            raise Untested("no item was acknowledged")
        searched = {key: value for _, key, value in reader.call("items", session, ("a",), 50)}
        got = {key: reader.call("item", session, ("a",), key) for key in kept}
        for found, how in ((searched, "search"), (got, "get")):
            lost = sorted(key for key, value in kept.items() if found.get(key) != value)
            story = f"of {len(kept)} items that were acknowledged, {how} has not {lost}"
            if lost:
                kit.broken(story, session=session, kind="lost")
        shared = searched.get("shared")
        kit.check(shared in {None, "v0", "v1", "v2", "v3"}, f"one item was put four times; it is {shared!r}")


@registry.clause(
    "expired-items",
    "An item whose time to live is over is gone from get and from search.",
    incident="Rows that wait for a sweeper: a search still finds the card number that was to live for an hour.",
    needs=["items", "ttl"],
)
def expired_items(kit: Kit) -> None:
    store, session = kit.open("A", at=kit.place(), ttl=TTL), kit.session()
    put = store.take(Step("put_item", session, (("a",), "k", "v")))
    if not put.ok:
        raise Untested(f"with a ttl, a put raised {put.fault}")
    gone_by = put.ended + TTL + GRACE
    while True:
        got = store.call("item", session, ("a",), "k")
        searched = store.call("items", session, ("a",), 50)
        if (got is None and not searched) or time.monotonic() > gone_by:
            break
        time.sleep(0.05)
    kit.check(
        got is None and not searched,
        f"{GRACE:g} s after its ttl of {TTL:g} s was over, get gives {got!r} and a search {searched}",
        session=session,
    )
