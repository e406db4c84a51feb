"""LangGraph: checkpoints in a store of everturn's. Example: `graph.compile(checkpointer=EverturnSaver(store))`.

saver.py               EverturnSaver, the BaseCheckpointSaver: LangGraph's interface
config.py              thread, namespace and checkpoint ids of a config; the session id of a thread
put.py                 put and put_writes: each is one append, with conflict detection
checkpoint_entries.py  turns a checkpoint, or a task's writes, into the entries that put.py appends. Pure
get.py                 get_tuple and delta channel history: entries back into checkpoints
listing.py             list, over one session or many
delete.py              delete, copy and prune threads
rewrite.py             entries written anew after a fork of a thread or a deletion of checkpoints. Pure
checkpoint_log.py      the stored form: which records there are, and the checkpoints that they stand for. Pure
message_refs.py        messages inside other values: stored as references (quotes) to the session's messages
values.py              channel values as JSON and back
session_reader.py      reads of a session, as far back as a checkpoint needs
cache.py               ThreadCache: the latest known state of each thread
thread_lock.py         ThreadLock: one put of a thread at a time, within one saver
thread_run.py          ThreadRun: the lease of a thread for one run, and the fence of its puts
history.py             to_langchain: a session's messages as LangChain's
errors.py              refusals that name thread, checkpoint and channel

Words in these files: `said` are the messages of the channel `messages` with their seqs; `left` are those of a branch
that time travel left; a `node` is a value as JSON; a `ref` says where the value of a channel is stored.
"""

from everturn.adapters._shared.sync_async import require

require("langgraph", (1, 2), "langgraph")
require("langgraph-checkpoint", (4, 2), "langgraph")

from everturn.adapters.langgraph.config import session_of, thread_of  # noqa: E402 - after the check
from everturn.adapters.langgraph.history import to_langchain  # noqa: E402
from everturn.adapters.langgraph.saver import EverturnSaver  # noqa: E402

__all__ = ["EverturnSaver", "session_of", "thread_of", "to_langchain"]
