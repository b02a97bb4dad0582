"""The port (interface) of the transport below a connection. :mod:`wormhole.push.dial` dials the subscriber; in
:mod:`publisher.push.attached` the subscriber dialled the publisher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import grpc

    from wormhole.host.certificates import Certificate
    from wormhole.model.errors import ProtocolError, StreamBroken

__all__ = ["Line", "PushCall"]

PushCall = Any
"""A stream of serialized messages. Iterating it reads messages, and ``write`` sends one. gRPC's stubs cannot express
that a call without serializers carries bytes.
"""


class Line(Protocol):
    """The line of one connection.

    ``certificate``: the subscriber's certificate, once the line is open; ``None``: any certificate of the authority is
    accepted, or the line has no TLS.
    """

    @property
    def certificate(self) -> Certificate | None: ...

    async def open(self) -> PushCall:
        """Open the stream. Raises :class:`~wormhole.model.errors.StreamBroken`."""

    async def check_peer(self) -> None:
        """Check the peer, before its welcome is accepted. Raises :class:`~wormhole.model.errors.StreamBroken`."""

    async def until_refused(self) -> None:
        """Run while the subscriber's certificate is accepted. Raises :class:`~wormhole.model.errors.StreamBroken`."""

    async def why_ended(self, error: grpc.RpcError, *, welcomed: bool) -> StreamBroken | ProtocolError:
        """The error for a stream that ended, with the next step."""

    async def close(self) -> None:
        """End the stream; idempotent."""
