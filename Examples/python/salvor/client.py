"""One device's database and its way to the server."""

from __future__ import annotations

import atexit
import json
import os
import sys
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Callable, Iterable, Iterator, Optional, Type, Union

from . import _library
from .reports import Event, Recovery, RecoveryPlan, Request, State, Status, SyncReport


# Held until they are closed: the library calls their listeners. An interpreter that ends takes no call from another thread any more.
_open: set[Client] = set()
_process = os.getpid()


@atexit.register
def _close_all() -> None:
    if os.getpid() == _process:
        for client in list(_open):
            client.close()


class Subscription:
    """Ends with `cancel`, or with its client."""

    def __init__(self, client: Client, listener: Callable[[Event], None]) -> None:
        def told(_: Any, event: bytes) -> None:
            try:
                listener(Event.of(json.loads(event)))
            except Exception:  # A callback's error has nobody else to go to.
                sys.excepthook(*sys.exc_info())

        self._client = client
        # Held as long as the library may call it.
        self._callback = _library.CALLBACK(told)
        self._number = client._library.subscribe(client._number, self._callback)

    def cancel(self) -> None:
        """The listener is not called any more when this returns, unless it called this itself."""
        self._client._library.call("unsubscribe", self._client._number, self._number)


class Client:
    """
    with Client("salvor.json5") as client:
        report = client.synchronize()

    The application reads and writes the database with sqlite3, SQLAlchemy or whatever it likes. Every method may be called from
    every thread, and holds it until it is done; salvor.aio has the same for asyncio.
    """

    def __init__(
        self, configuration: Union[str, dict[str, Any]], *, directory: Optional[str] = None,
        token: Optional[str] = None,
    ) -> None:
        """
        configuration: the path of a salvor.json5, or what would stand in one.
        directory: what relative paths in such a dictionary are relative to.
        token: the credential, in the place of client.credentials; `set_token` gives another.
        """
        self._library = _library.load()
        options: dict[str, Any] = {"token": token, "directory": directory}
        options["configurationFile" if isinstance(configuration, str) else "configuration"] = configuration
        self._subscriptions: list[Subscription] = []
        self._number, self.opening = self._library.open(options)
        _open.add(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends what runs at its next safe place. To close again does nothing. Where the program ends, it is done for it."""
        self._call("close")
        _open.discard(self)

    def set_token(self, token: str) -> None:
        self._call("set_token", token.encode())

    def switch(self, database: str, *, principal: Optional[str] = None, token: Optional[str] = None) -> str:
        """
        Another user takes over, with a database of his own; answers his name as the database has it. What the user of before
        has not sent stays in his file, and goes when he is back. A watch ends.
        """
        options = {"database": database, "principal": principal, "token": token}
        return str(self._call("switch", options)["principal"])

    def register(self) -> str:
        """The remote ID, known to the server from here on."""
        return str(self._call("register")["remoteID"])

    def synchronize(
        self, groups: Optional[Iterable[str]] = None, *, within: Optional[float] = None
    ) -> SyncReport:
        """Raises SalvorError where it failed; nothing is lost then. within: seconds; the outcome is "unfinished" after them."""
        return SyncReport.of(
            self._call("synchronize", {
                "groups": None if groups is None else sorted(groups),
                "withinMilliseconds": None if within is None else max(1, int(within * 1000)),
            }))

    def cancel(self) -> None:
        """Ends the calls that run, at their next safe place: they raise SalvorError "cancelled"."""
        self._call("cancel")

    def subscribe(self, listener: Callable[[Event], None]) -> Subscription:
        """Tells `listener` of each event, on a thread of the library, one at a time."""
        made = Subscription(self, listener)
        self._subscriptions.append(made)
        return made

    def watch(self, groups: Optional[Iterable[str]] = None) -> None:
        """Synchronizes when either side changes, from now on. Returns at once."""
        self._call("watch", {"groups": None if groups is None else sorted(groups)})

    def unwatch(self) -> None:
        self._call("unwatch")

    @property
    def state(self) -> State:
        return State.of(self._call("state"))

    def status(self) -> Status:
        return Status.of(self._call("status"))

    def queue(self) -> Iterator[Request]:
        """What waits to be sent."""
        return self._requests("queue")

    def errors(self) -> Iterator[Request]:
        """The error archive: what was refused, blocked, displaced, or kept by a recovery."""
        return self._requests("errors")

    def withdraw(self, id: str, *, plan: bool = False) -> dict[str, Any]:
        return dict(self._call("withdraw", {"id": id, "plan": plan}))

    def delete(self, id: Optional[str] = None, *, all: bool = False, kept: bool = False, plan: bool = False) -> dict[str, Any]:
        """Takes failed requests back: their rows are as if they had never been made."""
        return dict(self._call("errors_delete", {"id": id, "all": all, "kept": kept, "plan": plan}))

    def retry(self, id: Optional[str] = None, *, all: bool = False) -> list[dict[str, Any]]:
        """The next synchronization sends them again."""
        return list(self._call("errors_retry", {"id": id, "all": all})["requests"])

    def reapply(self, id: str) -> Optional[str]:
        """Does again what a kept entry did; the new request's ID, or None: the rows were so already."""
        now = self._call("errors_reapply", {"id": id})["now"]
        return None if now is None else str(now)

    def recovery_plan(self, strategy: Optional[str] = None) -> RecoveryPlan:
        return RecoveryPlan.of(self._call("recovery_plan", {"strategy": strategy}))

    def recover(self, strategy: Optional[str] = None, *, token: Optional[str] = None) -> SyncReport:
        """Recovers, then synchronizes. token: of the recovery that is required (`status`)."""
        return SyncReport.of(self._call("recover", {"strategy": strategy, "token": token}))

    def recoveries(self) -> list[Recovery]:
        return [Recovery.of(one) for one in self._call("recoveries", {})["recoveries"]]

    @contextmanager
    def capture_paused(self) -> Iterator[None]:
        """For migrations: what differs in the end is captured, not what was done on the way."""
        self._call("capture_pause")
        try:
            yield
        finally:
            self._call("capture_resume")

    def _requests(self, function: str) -> Iterator[Request]:
        after: Optional[str] = None
        while True:
            page = self._call(function, {"after": after})
            yield from (Request.of(one) for one in page["requests"])
            after = page["next"]
            if after is None:
                return

    def _call(self, function: str, *arguments: Any) -> Any:
        return self._library.call(function, self._number, *arguments)
