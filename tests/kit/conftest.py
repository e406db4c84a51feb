"""The kit's fork servers are forked, not started, but in the files that say so."""

from tests.kit.warm_fork_server import warm_fork_servers  # noqa: F401 - a fixture
