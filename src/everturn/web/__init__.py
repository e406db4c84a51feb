"""The inspector: a local web page on a store, to see what was remembered and to take it back.

__init__.py   this: the map
app.py        routes, and what a request is given: the store and what it may do
security.py      who may ask: token, cookie, Host, Origin, headers, bounds
serving.py    opens the store and runs the server
html.py       elements as values; text is escaped by construction
sessions.py   the list of sessions
session.py    one session: the conversation, a window at a time, beside its timeline
compare.py    two states, side by side
search.py     text, in one session or in all
actions.py    what changes a session
reports.py    reports of the contract kit
server_sent_events.py       server-sent events: something changed, look again
entries.py    entries as people read them
timeline_svg.py    the timeline as SVG
static/       one script, one style sheet; nothing is loaded from elsewhere
"""
