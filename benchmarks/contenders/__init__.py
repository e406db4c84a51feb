"""Peers, and stores under frameworks. Only `make bench` measures them, and no wheel has them.

on_sqlite/    OpenAI Agents, LangChain, LangGraph and ADK on SQLite
on_redis/     LangChain and OpenAI Agents on Redis
on_postgres/  LangChain and LangGraph on PostgreSQL
frameworks/   everturn's adapters, and the stores that frameworks bring, each through the framework's interface
checkpoints.py langchain_messages.py   parts that several of these share
"""
