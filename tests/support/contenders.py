"""Publishers that contend for a log, without its datastore: they own it or stand by, and hand it over when it is moved.

They live in a thread with an event loop of its own, so that a test can run commands meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from publisher.flows.candidacy import Candidacy, Candidate
from publisher.flows.ownership import LogHandedOver, Ownership
from tests.support.eventually import PATIENCE_S, until
from wormhole.admin.discovery import log_owners
from wormhole.coordination.connect import connect
from wormhole.coordination.port import LogGroup, PublisherInfo
from wormhole.coordination.standbys import owner_name
from wormhole.host.where import Where
from wormhole.ports.datastore import Standing

__all__ = ["Contender", "contending", "is_there"]

T = TypeVar("T")


class Contender:
    """``name``: ``COPY@HOST``. ``standing``: what it finds in its datastore."""

    def __init__(self, zookeeper: str, group: LogGroup, name: str, rank: int, standing: Standing) -> None:
        copy, _, host = name.partition("@")
        self.name, self.standing = name, standing
        self._coordinator = connect(zookeeper)
        candidate = Candidate(group, copy, host, rank, 3600.0, self._look)
        self._ownership = Ownership(self._coordinator, fenced=True, candidacy=Candidacy(self._coordinator, candidate))
        self._info = PublisherInfo(
            group.dataset, copy, group.log, host, 100 + rank, f"127.0.0.1:{1 + rank}", 1.0 + rank
        )

    async def _look(self) -> Standing:
        return self.standing

    async def run(self) -> None:
        """Own the log and stand by in turn, until cancelled."""
        await self._coordinator.start()
        try:
            while True:
                try:
                    await self._ownership.take(self._info)
                    await self._ownership.until_another(lambda: False)
                except LogHandedOver:
                    await self._ownership.give_up()
        finally:
            await self._ownership.give_up()
            await self._coordinator.stop()


@contextmanager
def contending(zookeeper: str, group: LogGroup, **standings: Standing) -> Iterator[None]:
    """``standings``: by ``COPY_HOST``, the preferred one first, which owns the log when this begins."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="contenders")
    thread.start()

    def call(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_S)

    tasks: list[asyncio.Task[None]] = []

    async def begin(one: Contender) -> None:
        tasks.append(asyncio.create_task(one.run()))

    async def end() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        for rank, (key, standing) in enumerate(standings.items()):
            name = key.replace("_", "@")
            call(begin(Contender(zookeeper, group, name, rank, standing)))
            until(partial(is_there, zookeeper, group, name), f"{name} owns the log or stands by")
        yield
    finally:
        call(end())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def is_there(zookeeper: str, group: LogGroup, name: str) -> bool:
    """Whether it owns the log, or stands by and has looked at its datastore."""
    owners = log_owners(Where(coordinator=zookeeper)).get(group)
    if owners is None:
        return False
    looked = [one.name for one in owners.candidates if one.server or "has not asked" not in one.waits]
    return owner_name(owners) == name or name in looked
