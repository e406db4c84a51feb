"""Faults made on purpose: disks, network, files.

disks.py  SQLite VFSes that lose power, or are slow to sync
proxy.py  a loopback proxy that breaks the network
files.py  a store's files: locked, overwritten, cut
durable_files.py  files as a power cut would leave them
system_calls.py   writes, syncs and removals of a process, watched from outside
"""
