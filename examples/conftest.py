"""Leaves out what is a project of its own, with a pytest.ini: run pytest in its folder."""

collect_ignore = ["snapshot_db"]
