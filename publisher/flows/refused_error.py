"""A refused request of an operator, with its gRPC status."""

from __future__ import annotations

import grpc

from wormhole.model.errors import PositionPurged, Retryable, UsageError, WormholeError

__all__ = ["RefusedError", "one_line", "status_of"]


class RefusedError(UsageError):
    """A refused request. ``status``: the gRPC status that names the kind of reason."""

    code: str = "change-refused"

    def __init__(
        self,
        status: grpc.StatusCode,
        message: str,
        *,
        flow: str | None = None,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, flow=flow, hint=hint, code=code)
        self.status = status


def status_of(error: WormholeError) -> grpc.StatusCode:
    """The gRPC status with which a request fails on ``error``."""
    match error:
        case RefusedError():
            return error.status
        case Retryable():
            return grpc.StatusCode.UNAVAILABLE
        case UsageError():
            return grpc.StatusCode.INVALID_ARGUMENT
        case PositionPurged():
            return grpc.StatusCode.FAILED_PRECONDITION
        case _:
            return grpc.StatusCode.INTERNAL


def one_line(error: WormholeError) -> str:
    """The error as one line for the client."""
    return " ".join(str(error).split())
