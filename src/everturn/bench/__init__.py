"""Measures stores beside each other: everturn and bare drivers. `benchmarks/` of the repository adds other stores.

workload.py   the conversations that are written, the same for all
contenders/   the stores, each behind the same methods, each in a process of its own
measuring.py  the measurements of `everturn bench`
plots.py      its figures as SVG
"""
