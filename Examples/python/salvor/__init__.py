"""SQLite databases that stay in step with a server: libsalvor for Python.

    from salvor import Client

    with Client("salvor.json5") as client:
        print(client.synchronize().upserts)
"""

from .client import Client, Subscription
from .reports import (
    Event, Recovery, RecoveryPlan, Request, SalvorError, State, Status, SyncReport, TableChange,
)

__all__ = [
    "Client", "Event", "Recovery", "RecoveryPlan", "Request", "SalvorError", "State", "Status", "Subscription",
    "SyncReport", "TableChange",
]
