"""Peers on PostgreSQL."""
