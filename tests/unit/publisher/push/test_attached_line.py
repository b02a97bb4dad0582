"""The line that a subscriber dialled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from publisher.push.attached import AttachedLine
from wormhole.model.errors import StreamBroken, WormholeError


async def _nothing() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def _never() -> WormholeError:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("error", [grpc.aio.UsageError("RPC already finished."), asyncio.InvalidStateError()])
async def test_a_write_to_a_call_that_is_over_is_a_broken_stream(error: Exception) -> None:
    async def write(message: bytes) -> None:
        raise error

    with pytest.raises(StreamBroken):
        await AttachedLine(_nothing(), write, "ipv4:127.0.0.1:1", None, _never).write(b"x")
