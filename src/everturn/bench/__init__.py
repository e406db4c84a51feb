"""Measures stores beside each other: everturn, bare drivers, and the peers that are installed.

workload.py   the conversations that are written, the same for all
contenders/   the stores, each behind the same methods, each in a process of its own
measuring.py  the measurements of `everturn bench`
plots.py      its figures as SVG
"""
