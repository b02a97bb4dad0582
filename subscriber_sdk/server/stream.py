"""The streams of a subscriber, whichever side dialled. Each has a reader, a writer, and a timer for heartbeats."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import grpc

from subscriber_sdk.options.admission import Admission, Refusal
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.server.connection import PublisherConnection
from subscriber_sdk.server.epoch_records import AskEpochs
from subscriber_sdk.server.publishers import Publishers
from subscriber_sdk.stream.flow_port import PushingPeer
from subscriber_sdk.stream.session import Session
from subscriber_sdk.work.shards import Shards
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import ProtocolError
from wormhole.model.problem import Problem
from wormhole.push.refusal import refusal_of, why_unreachable
from wormhole.wire.problems import code_of_goodbye

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wormhole.config import ApplicationConfig

__all__ = ["PublisherStream", "Streams"]

_PROGRESS_S: Final = 0.05  # least time between two messages that only report progress
_CLOSE_S: Final = 5.0  # how long a publisher that does not read may delay the end of a stream that we close
_END_S: Final = 1.0  # how long a publisher that was dialled may take to end a stream that we close


class Streams:
    """The open streams of one subscriber, and the state that all of them share.

    ``admission``: decides which publishers may push. ``epochs``: looks up the recorded epochs of assignments; ``None``:
    assignments are not looked up. Both apply to streams that begin later. ``publishers``: logs which publishers are
    connected.
    """

    def __init__(self, shards: Shards, options: Options) -> None:
        self.admission = Admission(options.application, options.instance, options.publishers)
        self.epochs: AskEpochs | None = None
        self.publishers = Publishers(options, lambda: bool(shards.workers()))
        self._shards = shards
        self._options = options
        self._open: set[PublisherStream] = set()
        self._late = 0  # late frames on streams that ended

    @property
    def traffic(self) -> tuple[int, int]:
        """The number of open streams, and the number of frames so far that arrived after the end of their epoch."""
        streams = tuple(self._open)
        return len(streams), self._late + sum(stream.connection.session.dropped for stream in streams)

    def bind(self, configured: ApplicationConfig | None) -> None:
        """Accept only publishers of the application's dataset from now on; ``None``: the dataset is not known."""
        if configured is not None:
            self.admission = replace(self.admission, dataset=configured.dataset)

    @contextmanager
    def opened(
        self, label: str, names: frozenset[str], refusal: Refusal | None = None, expected: str = ""
    ) -> Iterator[PublisherStream]:
        """Open a stream to the publisher ``label``, whose certificate has these ``names``. With a ``refusal`` only
        goodbye is sent. ``expected``: see :class:`~subscriber_sdk.options.admission.Admission`.
        """
        refusal = refusal or self.admission.refuses_certificate(names)
        admission = replace(self.admission, expected=expected)
        stream = PublisherStream(
            self._shards, self._options, admission, self.epochs, self.publishers, label=label, names=names
        )
        self._open.add(stream)
        try:
            if refusal is not None:
                reason, message, hint = refusal
                self.publishers.refused(label, Problem(message, hint, code_of_goodbye(reason)))
                stream.connection.session.goodbye(*refusal)
            else:
                stream.connection.begin()
            yield stream
        finally:
            self._open.discard(stream)
            self.publishers.disconnected(stream.connection.session.peer)
            self._late += stream.connection.session.dropped

    async def leave(self) -> None:
        """Send goodbye on every stream, and wait until the streams have ended."""
        for stream in list(self._open):
            stream.connection.leave()
        if self._open:
            await asyncio.wait([stream.over for stream in self._open], timeout=_CLOSE_S)


class PublisherStream:
    """One stream: a reader that always reads, a writer that sends the output, and a timer for heartbeats."""

    def __init__(
        self,
        shards: Shards,
        options: Options,
        admission: Admission,
        epochs: AskEpochs | None,
        publishers: Publishers,
        *,
        label: str,
        names: frozenset[str],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._time: Callable[[], float] = loop.time
        self._call_at = loop.call_at
        self._due = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None  # sets `_due`
        self._said_at = -math.inf
        self.over: asyncio.Future[None] = loop.create_future()
        owner = ",".join(sorted(names)) or f"{label} {id(self)}"
        session = Session(
            admission,
            max_frame_bytes=options.max_frame,
            max_body_bytes=options.max_body,
            now=loop.time(),
            peer=PushingPeer(label, names=names),
            abilities=shards.abilities,
            # Without TLS publishers cannot be distinguished: each stream counts for itself.
            accounts=shards.accounts(owner, self._end),
        )
        self.connection = PublisherConnection(session, shards, self._due.set, epochs, publishers, self._speak_soon)

    def _speak_soon(self) -> None:
        """Send at once after a pause, or else after a delay, so that one message answers several."""
        if self._soon is None and not self._due.is_set():
            self._soon = self._call_at(self._said_at + _PROGRESS_S, self._due.set)

    def _end(self, error: ProtocolError) -> None:
        """End the stream, because another stream needs the memory that this stream uses."""
        self.connection.refuse(error)

    async def run(
        self,
        requests: AsyncIterable[bytes],
        write: Callable[[bytes], Any],
        end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Run until either side has ended the stream.

        ``end``: signals to a publisher that was dialled that nothing more is written. The publisher then ends the
        stream. This method waits for that end, because a cancelled read would cancel the gRPC call, which may lose the
        last written message.
        """
        reader = asyncio.create_task(self._read(requests), name="wormhole stream reader")
        writer = asyncio.create_task(self._write(write), name="wormhole stream writer")
        cause = "the connection to the publisher broke"  # gRPC cancels the handler of a peer that is gone
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and not writer.done():
                cause = reader.result()
                # Half closed: nothing more can arrive, so the publisher is gone. Waiting output is still sent.
                self.connection.lost(cause)
                self._due.set()
                await asyncio.wait({writer}, timeout=_CLOSE_S)
            elif writer.done() and not writer.cancelled() and writer.exception() is not None:
                cause = f"writing failed: {writer.exception()!r}"
            else:
                cause = "closed"
                if end is not None:
                    with suppress(grpc.RpcError, asyncio.InvalidStateError):  # the publisher ended the stream first
                        await end()
                    await asyncio.wait({reader}, timeout=_END_S)
        finally:
            self.connection.lost(cause)
            try:
                await cancel_all(reader, writer)
            finally:  # gRPC cancels the handler when the peer ends, even while the handler ends
                if not self.over.done():
                    self.over.set_result(None)

    async def _read(self, requests: AsyncIterable[bytes]) -> str:
        connection, time = self.connection, self._time
        try:
            async for data in requests:
                if not connection.closed:
                    connection.receive(data, time())
        except grpc.RpcError as error:
            status, problem = refusal_of(error)  # the error's repr has several lines
            return f"the connection broke: {why_unreachable(problem.text) or status}"
        return "the publisher ended the stream"

    async def _write(self, write: Callable[[bytes], Any]) -> None:
        connection, due, time = self.connection, self._due, self._time
        while True:
            due.clear()
            if self._soon is not None:
                self._soon.cancel()
                self._soon = None
            data = connection.take_output(now := time())
            if data is not None:
                self._said_at = now
                # A publisher that neither reads nor closes must not keep the stream, and its flows, for ever.
                async with asyncio.timeout(connection.session.silence_limit()):
                    await write(data)
                continue
            if connection.closed:
                return
            try:
                async with asyncio.timeout_at(connection.session.deadline()):
                    await due.wait()
            except TimeoutError:
                connection.tick(time())
