"""Benchmarks: everturn beside the bare driver and beside other stores, in one run on one machine.

    python -m benchmarks [--quick] [--only NAME ...] [--json FILE] [--no-peers]

backends.py  the servers that stores are compared on, and the contenders there
contenders/  one class per store, all with the same methods; those of `everturn bench` are in everturn.bench
rows/        one module per kind of work, each with its baseline and its bar
rounds.py    the method: many short rounds over all contenders, so that noise hits all of them alike
plan.py      the input of a measurement, and the rows it yields
machine.py   facts about the machine that a ratio may depend on
charts.py    a program of its own: the pictures in the README
many_edits.py  a program of its own: the cost of a session that was edited often
contention.py  a program of its own: writers in processes of their own, at one session of each backend
virtual_contention.py  the same on DynamoDB, in virtual time
stats.py     medians, spread, ratios
report.py    the table and the JSON
"""
