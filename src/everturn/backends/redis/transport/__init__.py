"""Connections to Redis servers: commands go out, replies come back, blocking or in an event loop.

blocking_pool.py        Transport, the protocol of both; connections shared between threads
blocking_connection.py  one blocking connection: send, wait no longer than the deadline, read the replies
async_pool.py           connections of an event loop; changes that wait at the same time are sent together
async_connection.py     one connection of an event loop
login.py                TLS, password and database of a new connection
resp.py                 commands to bytes, bytes to replies
"""
