"""Commands to one Redis server and its replies, blocking or in an event loop.

blocking_pool.py, blocking_connection.py   for threads
async_pool.py, async_connection.py         for an event loop
resp.py                                    commands and replies as bytes
"""
