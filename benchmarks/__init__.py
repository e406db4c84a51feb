"""How fast everturn is, beside the bare driver and beside other stores, in one run on one machine.

    python -m benchmarks [--quick] [--only NAME ...] [--json FILE] [--no-peers]

backends.py   the servers that stores are compared on, and who competes there
contenders/  what is measured: one class per store, all with the same three verbs
rows/        how it is measured: one module per kind of work, each with its baseline and its bar
rounds.py    the method: contenders take turns in many short rounds, so noise hits all of them alike
stats.py     medians, spread, ratios
report.py    the table and the JSON
"""
