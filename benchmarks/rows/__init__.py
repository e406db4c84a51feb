"""One module per kind of work; each has `measure(plan)`, which yields rows.

append.py load.py latest.py   one writer, and one reader, beside the bare driver
group_commit.py processes.py  many writers, in one process and in eight
growth.py ranges.py           long histories, and edited ones
leases.py                     leases and effects beside an append, on every backend
size.py imports.py            bytes on disk, and the cost of the import
peers.py adapters.py          other stores for SQLite, and each adapter beside its framework's own store
servers.py                    rows that every server has; redis.py and postgres.py add theirs
"""
