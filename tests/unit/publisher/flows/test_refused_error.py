"""Errors as gRPC tells them."""

from __future__ import annotations

import grpc
import pytest

from publisher.flows.refused_error import RefusedError, one_line, status_of
from wormhole.model import errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RefusedError(grpc.StatusCode.NOT_FOUND, "none"), grpc.StatusCode.NOT_FOUND),
        (errors.CoordinationLost("away"), grpc.StatusCode.UNAVAILABLE),
        (errors.PositionError("no place"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.PositionPurged("gone"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.MarkerStoreError("full"), grpc.StatusCode.INTERNAL),
    ],
)
def test_each_kind_has_its_status(error: errors.WormholeError, code: grpc.StatusCode) -> None:
    assert status_of(error) is code


def test_it_is_one_line_with_the_next_step() -> None:
    error = RefusedError(grpc.StatusCode.NOT_FOUND, "there is\nnone", flow="app/log", hint="look  again")
    assert one_line(error) == "there is none (flow app/log) [change-refused]. Next: look again"
