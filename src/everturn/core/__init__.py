"""Pure functions and values of conversations: no IO, no clock, no randomness, no driver.

validation.py       values to be stored, checked
codec.py            entries to bytes and back, with checksums
message_batches.py  rows of messages to ChatMessages, a batch at a time
requests.py         the requests that a store sends to a backend, and their outcomes
plan_change.py      the rules of every change, and what it writes; the reference for all backends
paths.py            the entries that a state shows, as ranges of seqs
branches.py         questions about paths, answered without walking them
effects.py          effects: requests, and the row of one
leases.py           leases: requests, the row of one, and when a lease is lost
facts.py            facts that sessions are found by
tool_calls.py       calls and their results: ids, orphans, pairs
healing.py          a prompt that models accept, out of any history
prompts.py          estimates of tokens, summaries as messages, summaries that stand for hidden messages
prompt_plan.py      which of the newest messages fit a prompt
trimming.py         which of the newest turns a trim keeps
text_search.py      whether an entry mentions a text
numbers.py          counts, sizes and durations as people say them
vectors.py          similarity of embeddings
masking.py          secrets in texts that people and logs see
signal_exceptions.py  exceptions of signal handlers, told from faults
"""
