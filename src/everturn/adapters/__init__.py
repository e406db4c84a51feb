"""Adapters: everturn under a framework, one module for each. Importing this imports no framework."""
