"""`snapshot_db`: a SQLite file as a golden artifact. Knows nothing of everturn's own store."""
