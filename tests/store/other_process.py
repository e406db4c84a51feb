"""Work of another process in tests of the store: it opens the store itself; its imports are done (children.py)."""

from __future__ import annotations

import everturn
from everturn import ChatMessage


def read_first(url: str) -> None:
    with everturn.open(url) as store:
        print(store.get_history("a")[0].content)


def append_with_key(url: str) -> None:
    with everturn.open(url) as store:
        receipt = store.add_messages("a", [ChatMessage("user", "one")], key="k")
        print(receipt.version, receipt.seqs[0], receipt.replayed)


def roll_back_and_say(url: str, snapshot: str, text: str) -> None:
    with everturn.open(url) as store:
        store.rollback_to_snapshot("a", snapshot)
        store.add_messages("a", [ChatMessage("user", text)])
        print(*(message.content for message in store.get_history("a")))
