"""Peers on Redis."""
