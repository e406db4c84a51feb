"""Operations: the methods of a store, written once for MemoryStore and AsyncMemoryStore.

Each checks its arguments, sends a request to the backend, and turns the answer into a value or an error. The methods of
changes.py (add_messages, rollback, ...) come by way of effects.py and trim.py, which call them.
"""

from __future__ import annotations

from everturn.store.effects import EffectOperations
from everturn.store.erase_many import EraseManyOperations
from everturn.store.facts import FactOperations
from everturn.store.fold import FoldOperations
from everturn.store.health import HealthOperations
from everturn.store.leases import LeaseOperations
from everturn.store.reads import ReadOperations


class Operations(
    EraseManyOperations,
    FoldOperations,
    EffectOperations,
    FactOperations,
    LeaseOperations,
    ReadOperations,
    HealthOperations,
):
    """Methods of a store. sync.py and aio.py document them, and lend a clock and a way to wait (Runtime)."""
