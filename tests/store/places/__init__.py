"""Where the contract runs: every backend, behind both faces. A backend is added as a subclass of Place, here."""

from tests.store.places.dynamodb import AsyncDynamoDB, DynamoDB
from tests.store.places.place import Clock, Editor, LoopThread, Place, Stored
from tests.store.places.postgres import AsyncPostgres, Postgres
from tests.store.places.redis import AsyncCluster, AsyncValkey, Cluster, Fake, Valkey
from tests.store.places.servers import Servers
from tests.store.places.sqlite import AsyncFile, File, Memory
from tests.store.places.toy import Toy

ALL: dict[str, type[Place]] = {
    "sqlite-file": File,
    "sqlite-memory": Memory,
    "sqlite-async": AsyncFile,
    "valkey": Valkey,
    "valkey-async": AsyncValkey,
    "cluster": Cluster,
    "cluster-async": AsyncCluster,
    "fakeredis": Fake,
    "postgres": Postgres,
    "postgres-async": AsyncPostgres,
    "dynamodb": DynamoDB,
    "dynamodb-async": AsyncDynamoDB,
    "toy": Toy,
}

__all__ = ["ALL", "Clock", "Editor", "File", "LoopThread", "Place", "Servers", "Stored"]
