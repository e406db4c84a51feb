"""Tools to prove a memory store: faults, contracts and golden files."""
