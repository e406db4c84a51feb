"""Peers on servers, and stores under frameworks. Only `make bench` measures them, and no wheel has them.

on_redis/     LangChain and OpenAI Agents on Redis
on_postgres/  LangChain and LangGraph on PostgreSQL
frameworks/   everturn's adapters, and the stores that frameworks bring, each through the framework's interface
"""
