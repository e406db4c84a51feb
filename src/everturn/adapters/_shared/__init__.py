"""Pieces that several adapters share.

sync_async.py       one adapter method over a blocking or an awaited store
values.py           Python values as JSON and back, faithfully or not at all
finite.py           floats that JSON does not have
pydantic_models.py  pydantic models as values
tool_results.py     results of tool calls, in the order of the calls
seq_references.py   references to messages of the same session
"""
