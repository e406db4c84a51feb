"""Contenders on one Redis server, named by its URL. bare.py is the bare driver."""
