"""Backends that come with everturn, each imported when its URL is opened. The protocol is everturn/backend.py.

sqlite/    inside the process, in one file: the default
redis/     Redis and Valkey, by Lua scripts
postgres/  PostgreSQL, by functions in the database
dynamodb/  DynamoDB, by conditional transactions
_shared/   pieces that several of them use
"""
