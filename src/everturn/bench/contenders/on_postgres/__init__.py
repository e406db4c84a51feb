"""Contenders on one PostgreSQL server, named by its URL."""
