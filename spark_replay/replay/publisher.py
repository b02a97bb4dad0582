"""The client with which the driver and the tasks of a replay call the publisher (``Admin.Replay``, see admin.proto).

Only the publisher raises epochs and writes datamarkers. All calls block. A task makes them in a thread beside its
stream.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc

from wormhole.audit.sent_counts import Settled
from wormhole.config import TlsFiles
from wormhole.host.local_admin import LocalAdmin
from wormhole.host.tls import target_options
from wormhole.model.errors import EpochRefused, ReplayError, StreamBroken, UsageError, WormholeError
from wormhole.model.position import Datamarker
from wormhole.ports.dead_letters import DeadLetter, Parcel
from wormhole.push.parking import park_frames
from wormhole.push.refusal import refusal_of, why_unreachable
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import admin_pb2

if TYPE_CHECKING:
    from wormhole.host.certificates import Trusted
    from wormhole.host.trust import Trust

__all__ = ["TIMEOUT_S", "Reach", "ReplayClient", "TicketLostError"]

_METHOD: Final = "/wormhole.wire.v1.Admin/Replay"
# Bytes of a piece of a parked update's body. A publisher accepts requests of 512 KiB, and the last piece has the
# schema too.
_PIECE: Final = 128 << 10
_OPTIONS: Final = [("grpc.max_receive_message_length", -1)]  # one reply contains all parked rows
TIMEOUT_S: Final = 60.0
"""Seconds for an answer. ``begin`` and ``finish`` may open a log, and every change waits for the marker store."""


class TicketLostError(ReplayError):
    """The publisher no longer accepts the ticket, because another driver took the replay up."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How to reach one publisher. It is sent to the executors, where the certificates must have the same paths."""

    address: str
    tls: TlsFiles | None = None
    tls_name: str = ""


class ReplayClient(AbstractContextManager["ReplayClient"]):
    """One flow's replay at its publisher.

    ``local``: permits ``begin`` and ``cancel`` if no certificate does. A task has none, because its ticket is enough.
    ``timeout_s``: how long an answer may take. Every call raises :class:`~wormhole.model.errors.StreamBroken` if the
    publisher does not answer, :class:`~wormhole.model.errors.EpochRefused` if a newer epoch exists,
    :class:`TicketLostError`, :class:`~wormhole.model.errors.UsageError` for a wrong request, and
    :class:`~wormhole.model.errors.ReplayError` for a call that the flow's state does not permit.
    """

    def __init__(
        self,
        reach: Reach,
        flow: str,
        replay: str,
        *,
        ticket: str = "",
        local: LocalAdmin | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.reach = reach
        self.flow = flow
        self.replay = replay
        self.ticket = ticket
        self._local = local
        self._timeout_s = timeout_s
        self._channel: grpc.Channel | None = None
        self._trust: Trust | None = None
        self._made_with: Trusted | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent. The next call dials again."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def move(self, reach: Reach, local: LocalAdmin | None) -> None:
        """Use another address of the publisher from now on."""
        self.close()
        self.reach, self._local = reach, local

    def begin(self, what: admin_pb2.BeginReplay) -> admin_pb2.ReplayReply:
        """Take the flow from the live log, and keep its ticket in this object. ``what.preview``: change nothing."""
        reply = self._ask(begin=what)
        if not what.preview:
            self.ticket = reply.ticket
        return reply

    def open(self, opener: str = "", above: int = 0) -> admin_pb2.ReplayReply:
        """Open a new epoch above ``above``. The reply has the subscriber to dial; without a subscriber only ``cause``.

        ``opener``: the name of the caller. :meth:`renew` returns the name of the last one.
        """
        return self._ask(open=admin_pb2.OpenReplay(parks=True, projects=True, opener=opener, above=above))

    def advance(
        self,
        epoch: int,
        marker: Datamarker | None = None,
        progress: bytes = b"",
        updates: int = 0,
        size: int = 0,
        settled: Settled | None = None,
    ) -> admin_pb2.ReplayReply:
        """Store acknowledged progress. Without arguments it only asks whether the epoch is still valid."""
        what = admin_pb2.AdvanceReplay(epoch=epoch, progress=progress, updates=updates, bytes=size)
        if marker is not None:
            what.marker.CopyFrom(marker_to_message(marker))
        if settled is not None:
            what.settled.CopyFrom(settled.to_message())
        return self._ask(advance=what)

    def park(self, epoch: int, letter: DeadLetter, parcel: Parcel) -> str:
        """Store an update whose retries are exhausted. Returns why it is refused; empty: the update is durable."""
        refused = ""
        for frame in park_frames(letter.id, parcel, letter.place, letter.error, _PIECE):
            refused = self._ask(park=admin_pb2.ParkReplay(epoch=epoch, park=frame)).refused
        return refused

    def renew(self, rate: float | None = None) -> admin_pb2.ReplayReply:
        """Renew the lease. The reply contains the flow's place. ``rate``: bytes per second that the flow's task may
        push; ``None``: unchanged.
        """
        return self._ask(renew=admin_pb2.RenewReplay(rate=rate))

    def finish(self, epoch: int, marker: Datamarker, *, accept_gap: bool = False) -> admin_pb2.ReplayReply:
        """Hand the flow over to the live log at ``marker``.

        A reply with ``purged``: the log does not reach back to ``marker``, and the flow stays with the replay.
        """
        what = admin_pb2.FinishReplay(epoch=epoch, marker=marker_to_message(marker), accept_gap=accept_gap)
        return self._ask(finish=what)

    def cancel(self, who: str) -> admin_pb2.ReplayReply:
        """Give the flow up."""
        return self._ask(cancel=admin_pb2.CancelReplay(who=who))

    def _dialled(self) -> grpc.Channel:
        """A channel that was made with the present certificate files."""
        reach, channel = self.reach, self._channel
        if reach.tls is None:
            self._channel = channel or grpc.insecure_channel(reach.address, _OPTIONS)
            return self._channel
        from wormhole.host.peer_check import checked_credentials  # imported here, because its library takes 13 MB
        from wormhole.host.trust import Trust

        trust = self._trust = self._trust or Trust(reach.tls)
        if channel is None or trust.current() is not self._made_with:
            self.close()
            options = [*_OPTIONS, *(target_options(reach.tls_name) if reach.tls_name else [])]
            credentials, _ = asyncio.run(checked_credentials(reach.address, trust))
            channel = self._channel = grpc.secure_channel(reach.address, credentials, options=options)
            self._made_with = trust.held
        return channel

    def _certificates(self, error: grpc.RpcError) -> str:
        """The TLS error that prevented the call; empty if the cause is another one."""
        call: Any = error
        if self._trust is None or not hasattr(call, "code") or call.code() is not grpc.StatusCode.UNAVAILABLE:
            return ""
        from wormhole.host.peer_check import explain

        return asyncio.run(explain(self.reach.address, self.reach.tls_name, self._trust))

    def _ask(self, **what: Any) -> admin_pb2.ReplayReply:
        request = admin_pb2.ReplayRequest(flow=self.flow, replay=self.replay, ticket=self.ticket, **what)
        try:
            if self._local is not None and ("begin" in what or "cancel" in what):
                with self._local.dial() as (target, token), grpc.insecure_channel(target, _OPTIONS) as permitted:
                    return _call(permitted, request, self._timeout_s, (("authorization", f"Bearer {token}"),))
            return _call(self._dialled(), request, self._timeout_s)
        except grpc.RpcError as error:
            self.close()  # a channel that failed waits longer and longer before it dials again
            raise _told(error, self.reach.address, self.flow, self._certificates(error)) from error
        except ValueError as error:  # another thread closed the channel meanwhile
            raise StreamBroken(f"the publisher at {self.reach.address} was let go: {error}", flow=self.flow) from error


def _call(
    channel: grpc.Channel,
    request: admin_pb2.ReplayRequest,
    timeout_s: float,
    metadata: tuple[tuple[str, str], ...] | None = None,
) -> admin_pb2.ReplayReply:
    parse: Any = admin_pb2.ReplayReply
    call: Any = channel.unary_unary(
        _METHOD, request_serializer=lambda message: message.SerializeToString(), response_deserializer=parse.FromString
    )
    reply: admin_pb2.ReplayReply = call(request, timeout=timeout_s, metadata=metadata)
    return reply


def _told(error: grpc.RpcError, address: str, flow: str, certificates: str) -> WormholeError:
    """The publisher's refusal, or the failure to reach the publisher, as one of our errors."""
    name, problem = refusal_of(error)
    message, hint, code = problem.text, problem.hint or None, problem.code or None
    match name:
        case "ABORTED":
            return EpochRefused(message, flow=flow, hint=hint, code=code)
        case "UNAUTHENTICATED":
            return TicketLostError(message, flow=flow, hint=hint, code=code)
        case "NOT_FOUND" | "INVALID_ARGUMENT" | "PERMISSION_DENIED":
            return UsageError(message, flow=flow, hint=hint, code=code)
        case "UNIMPLEMENTED":
            return ReplayError(
                f"the publisher at {address} is of a release that knows no replay",
                flow=flow,
                hint="bring it up to date",
                code="release-too-old",
            )
        case "FAILED_PRECONDITION" | "INTERNAL" | "UNKNOWN":
            return ReplayError(message or name, flow=flow, hint=hint, code=code)
        case _:
            said = certificates or f"{name.lower().replace('_', ' ')} ({why_unreachable(message)})"
            return StreamBroken(
                f"the publisher at {address} does not answer: {said}",
                flow=flow,
                hint=hint or "check that it runs",
                code="publisher-silent",
            )
