"""What an operator asked for and does not get, with the status that gRPC tells it by."""

from __future__ import annotations

import grpc

from wormhole.model.errors import PositionPurged, Retryable, UsageError, WormholeError

__all__ = ["RefusedError", "code_of", "one_line"]


class RefusedError(UsageError):
    """A change that is not made; ``code`` tells programs why."""

    def __init__(
        self, code: grpc.StatusCode, message: str, *, flow: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, flow=flow, hint=hint)
        self.code = code


def code_of(error: WormholeError) -> grpc.StatusCode:
    """The status that stands for the error."""
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
    """The error as the one line that a client is told."""
    return " ".join(str(error).split())
