"""The scorecard: the contract on stores that others released, as docs/scorecard.md and docs/scorecard/latest.json.

    make scorecard                                   # all rows: an hour and a half on an idle machine
    make scorecard ARGS="--only strands --budget 240"   # some rows again; the others stay
    make scorecard ARGS=--page                       # the page anew, after a cause was written down

rows.py      the stores, their targets and the packages whose versions count
runs.py      runs one row in the environment that has its packages, and records what the report says
card.py      latest.json: its schema, and the rows in it
causes.toml  causes that somebody examined, by version; a finding without one is shown as not examined
page.py      the page, from page_top.md, latest.json and causes.toml
"""
