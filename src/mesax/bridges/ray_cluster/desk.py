"""Where the driver and its workers meet: an actor on the driver's node that takes no CPU.

Workers tell it how they are doing and what they have to hand over; the driver asks for news. Whoever is told that an
attempt is over, because the driver has begun another, leaves. Only plain values pass through it.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]
"""A kind, and what belongs to it."""
News: TypeAlias = list[tuple[str, Event]]
"""(attempt, event), in the order in which they came."""

GO_ON, STOP, LEAVE = "go on", "stop", "leave"


class Desk:
    """See above; every method is called from another process."""

    def __init__(self) -> None:
        self._news: News = []
        # Not the expected ones: a worker's first word may come before the driver's, if this actor was slow to start.
        self._dismissed: set[str] = set()
        self._stopping = False
        self._something = asyncio.Event()
        self._answers: dict[str, asyncio.Future[bool]] = {}

    async def dismiss(self, attempt: str) -> None:
        """From the driver: an attempt is over, whatever it still says."""
        self._dismissed.add(attempt)
        self._settle(attempt, False)

    async def stop(self) -> None:
        """From the driver: attempts at work are to save and leave."""
        self._stopping = True

    async def beat(self, attempt: str) -> str:
        """From a worker, again and again: it lives. The answer says what it is to do."""
        if attempt in self._dismissed:
            return LEAVE
        self._tell(attempt, {"kind": "alive"})
        return STOP if self._stopping else GO_ON

    async def tell(self, attempt: str, event: Event) -> None:
        """From a worker: progress, or a warning."""
        if attempt not in self._dismissed:
            self._tell(attempt, event)

    async def deliver(self, attempt: str, parcel: list[Any]) -> bool:
        """From a worker: files, as a reference that only the driver follows; answers once the driver has them."""
        if attempt in self._dismissed:
            return False
        future = self._answers[attempt] = asyncio.get_running_loop().create_future()
        self._tell(attempt, {"kind": "parcel", "parcel": parcel})
        return await future

    async def answer(self, attempt: str, accepted: bool) -> None:
        """From the driver: what became of a parcel."""
        self._settle(attempt, accepted)

    async def news(self, seconds: float) -> News:
        """From the driver: all that was told since it last asked; waits for something if there is nothing."""
        if not self._news:
            self._something.clear()
            try:
                await asyncio.wait_for(self._something.wait(), seconds)
            except TimeoutError:
                return []
        found, self._news = self._news, []
        return found

    def _tell(self, attempt: str, event: Event) -> None:
        self._news.append((attempt, event))
        self._something.set()

    def _settle(self, attempt: str, accepted: bool) -> None:
        future = self._answers.pop(attempt, None)
        if future is not None and not future.done():
            future.set_result(accepted)
