"""Parks updates whose handlers failed during a mass replay. The replay's tasks send them in pieces."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import grpc

from publisher.flows.dead_letters import DeadLetterOffice
from publisher.flows.refused_error import RefusedError
from publisher.flows.replay_states import ReplayRun
from publisher.push.flow import PublisherFlow
from publisher.push.stream import SubscriberStream
from wormhole.host.clock import Clock
from wormhole.model.errors import ProtocolError
from wormhole.push.allowance import WORK_PER_S, Reading, arrival_work
from wormhole.push.parking import Arriving, open_letter
from wormhole.push.peer_threads import PeerThreads
from wormhole.push.room import Room
from wormhole.wire.v1 import push_pb2

__all__ = ["ReplayParking"]


class ReplayParking:
    """``room``: the memory for updates that subscribers send for parking; ``threads``: the threads in which they are
    decoded."""

    def __init__(self, dead_letters: DeadLetterOffice, room: Room, threads: PeerThreads, clock: Clock) -> None:
        self._dead_letters = dead_letters
        self._room = room
        self._threads = threads
        self._clock = clock
        self._reading = Reading()

    def open(self, run: ReplayRun, stream: SubscriberStream) -> None:
        """Prepare for a task that pushes to the stream's subscriber."""
        run.parking.drop()
        run.parking = Arriving(self._room.share(lambda error: run.fence()))
        run.max_frame, run.parked_by = stream.max_frame_bytes, stream.identity

    async def waited(self, run: ReplayRun, frame: push_pb2.Park) -> bool:
        """Wait until the task's allowance covers the work of ``frame``. Returns whether there was a wait."""
        wait = run.pays(self._reading, arrival_work(frame.ByteSize()), self._clock.monotonic())
        if wait > 0:
            await self._clock.sleep(wait)
        return wait > 0

    async def park(self, flow: PublisherFlow, run: ReplayRun, epoch: int, frame: push_pb2.Park) -> str | None:
        """Take the next piece of an update, and store the update once it is complete.

        Returns why the update is refused; empty if it is durable or incomplete; ``None`` if the epoch is over. Raises
        :class:`~publisher.flows.refused_error.RefusedError`.
        """
        try:
            whole = run.parking.take(frame, flow.name)
        except ProtocolError as error:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, error.message, flow=flow.name) from error
        if whole is None:
            return ""

        def charge(seconds: float) -> None:
            run.pays(self._reading, seconds * WORK_PER_S, self._clock.monotonic())

        # This does not take the lock of requests about the flow, because it must be possible to cancel a replay whose
        # letters cannot be stored.
        try:
            letter, parcel = await self._threads.run(flow.application, partial(open_letter, whole, flow.name), charge)
            letter = replace(letter, parked_by=run.parked_by)
            return await self._dead_letters.park(flow, epoch, letter, parcel, run.max_frame, charge=charge)
        except ProtocolError as error:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, error.message, flow=flow.name) from error
        finally:
            whole.done()
