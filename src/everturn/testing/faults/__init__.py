"""Faults made on purpose: disks, network, files.

disks.py  SQLite VFSes that lose power, or are slow to sync
proxy.py  a loopback proxy that breaks the network
files.py  a store's files: locked, overwritten, cut
"""
