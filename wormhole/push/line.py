"""The port by which a connection reaches its subscriber. :mod:`wormhole.push.dial` dials; in
:mod:`publisher.push.attached` the subscriber dialled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import grpc

    from wormhole.host.certificates import Certificate
    from wormhole.model.errors import ProtocolError, StreamBroken

__all__ = ["Line", "PushCall"]

PushCall = Any
"""A stream of serialized messages: it is iterated, and has ``write``. The stubs of gRPC cannot express that a call
without serializers carries bytes.
"""


class Line(Protocol):
    """The line of one connection.

    ``certificate``: what the subscriber has shown, once the line is open; ``None``: any of the authority, or no TLS.
    """

    @property
    def certificate(self) -> Certificate | None: ...

    async def open(self) -> PushCall:
        """Open the stream. Raises :class:`~wormhole.model.errors.StreamBroken`."""

    async def check_peer(self) -> None:
        """Check who answered, before its welcome is accepted. Raises :class:`~wormhole.model.errors.StreamBroken`."""

    async def until_refused(self) -> None:
        """Run while the subscriber's certificate is accepted. Raises :class:`~wormhole.model.errors.StreamBroken`."""

    async def why_ended(self, error: grpc.RpcError, *, welcomed: bool) -> StreamBroken | ProtocolError:
        """The error for a stream that ended, in words that tell what to change."""

    async def close(self) -> None:
        """End the stream; idempotent."""
