"""LangGraph: checkpoints in a store of everturn's.

saver.py           EverturnSaver, the BaseCheckpointSaver
config.py          thread, namespace and checkpoint ids, from a config
put.py             put and put_writes: one change each; compose.py makes its entries
get.py             get_tuple and list; session_reader.py reads a session, cache.py keeps what was read
checkpoint_log.py  a session's records as checkpoints
rewrite.py         a thread that goes on from an earlier checkpoint
delete.py          delete, copy and prune threads
values.py          channel values as JSON and back
message_refs.py    messages that checkpoints refer to, stored once
thread_lock.py     one change of a thread at a time
errors.py          refusals, in LangGraph's words
"""

from everturn.adapters.langgraph.saver import EverturnSaver, session_of, thread_of, to_langchain

__all__ = ["EverturnSaver", "session_of", "thread_of", "to_langchain"]
