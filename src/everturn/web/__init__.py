"""The inspector: a local web page on a store, to read sessions, compare versions and roll back.

app.py                 the routes
serving.py             opens the store and runs the server
security.py            access: token, cookie, Host, Origin, headers, sizes
connection_limits.py   connections that never send a whole request are closed
page.py                the frame of every page, and the page of an error
links.py               addresses within the inspector
session_list.py        the list of sessions
session_page.py        one session: a window of its messages beside its timeline
timeline_svg.py        the timeline as SVG
entries.py             entries as HTML
compare.py             two versions, side by side
search.py              text, in one session or in all
actions.py             forms that change a session
effects.py             effects of a session, on its page and on that of a rollback
reports.py             reports of the contract kit
server_sent_events.py  pages that follow changes
static/                one script, one style sheet; nothing is loaded from elsewhere
"""
