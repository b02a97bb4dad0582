"""Forwards messages between a task of a mass replay and a subscriber that dialled this publisher.

The task calls ``Subscriber/Push`` at the admin service as if the subscriber listened there. The call's metadata names
the replay. The subscriber offers a second stream for this purpose (docs/wire.md, "Attach"). Messages are passed as
bytes, one at a time in each direction, so gRPC's flow control works from end to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import grpc

from publisher.flows.refused_error import RefusedError
from publisher.flows.replays import Replays
from publisher.operate.operators import flow_key
from publisher.push.attached import AttachedSubscribers
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import ProtocolError, StreamBroken
from wormhole.push.forwarding import Forwarding

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["ReplayForwarding"]

_MOST: Final = 64  # streams at one time
_OFFER_S: Final = 10.0


class ReplayForwarding:
    """See the module."""

    def __init__(self, replays: Replays, attached: AttachedSubscribers, trust: Trust | None) -> None:
        self._replays = replays
        self._attached = attached
        self._trust = trust
        self._streams = 0

    async def push(self, requests: AsyncIterable[bytes], context: Any) -> None:
        """Forward one stream until the task or the subscriber ends it.

        Raises :class:`~publisher.flows.refused_error.RefusedError` and
        :class:`~wormhole.model.errors.WormholeError`.
        """
        try:
            given = Forwarding.from_metadata(context.invocation_metadata() or ())
        except ProtocolError as error:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, error.message) from error
        info = self._replays.pushes_to(flow_key(given.flow), given.replay, given.ticket, given.epoch)
        if self._streams >= _MOST:
            raise RefusedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{_MOST} tasks push through this publisher",
                flow=given.flow,
                hint="nothing to do: a retry follows; `--at-once` starts fewer",
            )
        self._streams += 1
        try:
            line = await self._offered(info)
            try:
                await _until_one_ends(
                    _passed(requests, line.write),
                    _passed(line, context.write),
                    line.over(),
                    line.until_refused(),
                    self._until_revoked(context),
                )
            finally:
                await line.close()
        finally:
            self._streams -= 1

    async def _offered(self, info: Any) -> Any:
        try:
            async with asyncio.timeout(_OFFER_S):
                return await self._attached.spare(info)
        except TimeoutError:
            raise RefusedError(
                grpc.StatusCode.UNAVAILABLE,
                f"{info.id} dials this publisher, and offers no stream for a replay now",
                hint="nothing to do: a retry follows",
                code="no-subscriber",
            ) from None

    async def _until_revoked(self, context: Any) -> None:
        """Wait until the task's certificate is no longer accepted."""
        if self._trust is None:
            await asyncio.Event().wait()
        else:
            why = await self._trust.until_revoked(self._trust.client(context.auth_context()))
            raise StreamBroken(why, code="certificate-refused")


async def _passed(messages: AsyncIterable[bytes], write: Callable[[bytes], Awaitable[object]]) -> None:
    async for message in messages:
        await write(message)


async def _until_one_ends(*works: Awaitable[None]) -> None:
    """Run all ``works`` until the first one ends, cancel the others, and raise its error."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if (error := task.exception()) is not None:
                raise error
    finally:
        await cancel_all(*tasks)
