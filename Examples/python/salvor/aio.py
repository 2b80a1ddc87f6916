"""The same for asyncio: no method holds the event loop."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, AsyncIterator, Iterable, Optional, Type, TypeVar, Union, Callable

from .client import Client as BlockingClient
from .reports import Event, RecoveryPlan, Request, State, Status, SyncReport

Result = TypeVar("Result")


class Client:
    """
    async with Client("salvor.json5") as client:
        report = await client.synchronize()
    """

    def __init__(
        self, configuration: Union[str, dict[str, Any]], *, directory: Optional[str] = None,
        token: Optional[str] = None,
    ) -> None:
        self._arguments = (configuration, directory, token)
        self._opened: Optional[BlockingClient] = None

    @property
    def blocking(self) -> BlockingClient:
        if self._opened is None:
            raise RuntimeError("The client is not open: use \"async with\".")
        return self._opened

    async def __aenter__(self) -> Client:
        configuration, directory, token = self._arguments
        self._opened = await asyncio.to_thread(BlockingClient, configuration, directory=directory, token=token)
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await asyncio.to_thread(self.blocking.close)

    async def synchronize(
        self, groups: Optional[Iterable[str]] = None, *, within: Optional[float] = None
    ) -> SyncReport:
        """A task that is cancelled ends the synchronization at its next safe place."""
        return await self._run(lambda: self.blocking.synchronize(groups, within=within))

    async def switch(self, database: str, *, principal: Optional[str] = None, token: Optional[str] = None) -> str:
        return await self._run(lambda: self.blocking.switch(database, principal=principal, token=token))

    async def recover(self, strategy: Optional[str] = None, *, token: Optional[str] = None) -> SyncReport:
        return await self._run(lambda: self.blocking.recover(strategy, token=token))

    async def recovery_plan(self, strategy: Optional[str] = None) -> RecoveryPlan:
        return await self._run(lambda: self.blocking.recovery_plan(strategy))

    async def status(self) -> Status:
        return await self._run(self.blocking.status)

    async def errors(self) -> list[Request]:
        return await self._run(lambda: list(self.blocking.errors()))

    async def queue(self) -> list[Request]:
        return await self._run(lambda: list(self.blocking.queue()))

    async def retry(self, id: Optional[str] = None, *, all: bool = False) -> list[dict[str, Any]]:
        return await self._run(lambda: self.blocking.retry(id, all=all))

    async def delete(self, id: Optional[str] = None, *, all: bool = False, kept: bool = False) -> dict[str, Any]:
        return await self._run(lambda: self.blocking.delete(id, all=all, kept=kept))

    @property
    def state(self) -> State:
        return self.blocking.state

    async def watch(self, groups: Optional[Iterable[str]] = None) -> AsyncIterator[Event]:
        """The events of a watch, which ends with the loop over them."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()
        subscription = self.blocking.subscribe(lambda event: _hand_over(loop, events, event))
        try:
            await asyncio.to_thread(self.blocking.watch, groups)
            while True:
                event = await events.get()
                yield event
                if event.name == "watch-ended":
                    return
        finally:
            await asyncio.to_thread(self.blocking.unwatch)
            await asyncio.to_thread(subscription.cancel)

    async def _run(self, work: Callable[[], Result]) -> Result:
        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.blocking.cancel()
            # The thread is waited for: nothing of this client runs when the caller goes on.
            await asyncio.wait([task])
            task.exception()
            raise


def _hand_over(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[Event], event: Event) -> None:
    try:
        loop.call_soon_threadsafe(events.put_nowait, event)
    except RuntimeError:
        pass  # The loop has ended, and nobody waits for it.
