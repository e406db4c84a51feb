"""Contenders on one PostgreSQL server, named by its URL. bare.py is the bare driver."""
