"""Parts that several adapters use. None of them imports a framework.

sync_async.py       one way to call a store, whether it blocks or is awaited; the check of a framework's version
values.py           Python values as JSON and back, or a refusal
finite.py           refusal of NaN and infinity, which JSON does not have
pydantic_models.py  pydantic models built without validation
openai_items.py     OpenAI's input items as messages and back; the importer of SQLiteSession files uses it too
tool_results.py     results of tool calls, each right after its call
once_per_call.py    tools whose calls are effects, each done once
seq_references.py   refusal to move records that refer to messages by seq
"""
