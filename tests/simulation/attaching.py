"""Subscribers that dial their publishers, over the virtual network. The product's service admits them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NoReturn

from publisher.push.attach_service import AttachService
from tests.simulation.network import End, Network, Owner
from tests.simulation.world import Process
from wormhole.push.attaching import Attaching
from wormhole.push.redial import Redial

__all__ = ["AttachCall", "VirtualDialler", "VirtualListener", "attach_address"]

_STOP_S: Final = 0.5
"""So long calls have to end before they are cancelled, as in the product."""


def attach_address(host: str) -> str:
    """Where a publisher of the host listens."""
    return f"{host}:7490"


class _RefusedError(Exception):
    """The call was refused."""


class AttachCall:
    """One call of ``Attach`` at its publisher; also its context and its messages, as gRPC has them. ``stream`` has the
    connection once one took it.
    """

    def __init__(self, listener: VirtualListener, end: End, who: Attaching) -> None:
        self.end = end
        self.task: asyncio.Task[None] | None = None
        self._listener = listener
        self._who = who
        self._stream: Owner | None = None
        self._early: list[tuple[Any, ...]] = []

    # -- what the service asks of gRPC

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self._who.to_metadata()

    def peer(self) -> str:
        return f"ipv4:{self.end.other.process.host}:1"

    async def write(self, message: bytes) -> None:
        raise AssertionError("a stream writes to the line itself")

    async def abort(self, *reason: object, trailing_metadata: object) -> NoReturn:
        self.end.process.world.trace(f"{self._who.subscriber} is refused: {reason[1]}")
        raise _RefusedError

    def __aiter__(self) -> AttachCall:
        return self

    async def __anext__(self) -> bytes:
        raise AssertionError("a stream receives from the line itself")

    # -- its life

    def begin(self) -> None:
        """The call arrived."""
        if self.end.open:
            self.task = self._listener.process.loop.create_task(self._serve(), name=f"attach {self._who.subscriber}")

    async def _serve(self) -> None:
        try:
            await self._listener.service.attach(self, self)
        except _RefusedError:
            pass
        except Exception as error:
            self.end.process.world.violation(f"a call of {self._who.subscriber} ended: {error!r}")
        finally:
            self._listener.calls.pop(self, None)
            self.end.close()
            if self._stream is not None:
                self._stream.ended(self.end, "the call ended")

    def taken_by(self, stream: Owner) -> None:
        """A stream took the connection."""
        self._stream = stream
        early, self._early = self._early, []
        for message in early:
            stream.received(self.end, message)

    # -- its end of the line

    def received(self, end: End, message: tuple[Any, ...]) -> None:
        if self._stream is None:
            self._early.append(message)
        else:
            self._stream.received(end, message)

    def ended(self, end: End, cause: str) -> None:
        if self.task is not None:
            self.task.cancel()
        if self._stream is not None:
            self._stream.ended(end, cause)


class VirtualListener:
    """Takes the place of :class:`publisher.push.attach_service.AttachListener`. ``calls``: those under way."""

    def __init__(self, service: AttachService, network: Network, process: Process) -> None:
        self.service = service
        self.process = process
        self.calls: dict[AttachCall, None] = {}
        self._network = network

    async def run(self) -> None:
        """Listen until cancelled."""
        await self.service.attached.wanted.wait()
        listeners, address = self._network.listeners, attach_address(self.process.host)
        listeners[address] = self
        self.service.address = address
        try:
            await asyncio.Event().wait()
        finally:
            if listeners.get(address) is self:
                del listeners[address]
            tasks = [call.task for call in self.calls if call.task is not None]
            if tasks:
                await asyncio.wait(tasks, timeout=_STOP_S)
            for task in tasks:
                task.cancel()

    def accepted(self, end: End, hello: Any) -> AttachCall:
        """See :class:`tests.simulation.network.Listener`."""
        call = AttachCall(self, end, hello)
        self.calls[call] = None
        self.process.deliver(self.process.world.now, call.begin)
        return call


class VirtualDialler:
    """Keeps a connection of a subscriber to one publisher. ``accepted``: gets an end on which a publisher said hello,
    and what it said; it returns the end's owner.
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        address: str,
        who: Attaching,
        accepted: Callable[[End, tuple[str, str], VirtualDialler], Owner],
    ) -> None:
        self.over = False
        self._network, self._process, self._address, self._who = network, process, address, who
        self._accepted = accepted
        self._redial = Redial()
        self._welcomed_at = 0.0

    def dial(self) -> None:
        """Connect."""
        if not self.over:
            self._network.dial(self._process, self._address, self._who, self._dialled, self)

    def _dialled(self, end: End | None, vacant: bool) -> None:
        if end is None:
            self.lost()

    def received(self, end: End, message: tuple[Any, ...]) -> None:
        """The publisher's hello."""
        self._welcomed_at = self._process.monotonic()
        end.owner = self._accepted(end, message[2:], self)

    def ended(self, end: End, cause: str) -> None:
        """It was refused, or the line broke."""
        self.lost()

    def lost(self) -> None:
        """There is no connection: dial again."""
        process, began = self._process, self._welcomed_at
        self._welcomed_at = 0.0
        lasted_s = process.monotonic() - began if began else 0.0
        wait = self._redial.wait_s(lasted_s=lasted_s, acked=False, refused=False, left=False)
        wait *= process.world.chance.uniform(0.5, 1.0)
        process.deliver(process.world.now + wait / process.rate, self.dial)
