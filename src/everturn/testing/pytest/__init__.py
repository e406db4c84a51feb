"""The contract in pytest: a class of tests, and items for `--memory-target`.

memory_contract.py  MemoryContract
items.py            one item per clause
"""
