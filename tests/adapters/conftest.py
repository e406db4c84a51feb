"""The contract's fork servers are forked from a process that has imported the framework."""

from tests.kit.warm_fork_server import warm_fork_servers  # noqa: F401 - a fixture
