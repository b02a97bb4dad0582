"""A refused request of an operator, with its gRPC status."""

from __future__ import annotations

import grpc

from wormhole.model.errors import PositionPurged, Retryable, UsageError, WormholeError

__all__ = ["RefusedError", "code_of", "one_line"]


class RefusedError(UsageError):
    """A change that is not made; ``code`` is the reason for programs."""

    def __init__(
        self, code: grpc.StatusCode, message: str, *, flow: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, flow=flow, hint=hint)
        self.code = code


def code_of(error: WormholeError) -> grpc.StatusCode:
    """The gRPC status of the error."""
    match error:
        case RefusedError():
            return error.code
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
