"""Contenders on one Redis server, named by its URL."""
