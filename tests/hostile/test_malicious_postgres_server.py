"""A server that speaks PostgreSQL's protocol and means harm, or something in between that spoils it."""

from __future__ import annotations

import os
import select
import time
from typing import Any, cast

import pytest

from datastores.postgres.decode.encodings import UTF8
from datastores.postgres.server.connection import Connection
from datastores.postgres.server.stream import Stream
from datastores.postgres.server.waiting import ready
from tests.support import postgres_messages as build
from wormhole.model.errors import DecodeError


class Impostor:
    """Stands for libpq's connection, and for the one around it."""

    encoding = UTF8

    def __init__(self, *messages: bytes) -> None:
        self._messages = list(messages)
        self.pgconn: Any = self

    def get_copy_data(self, _without_waiting: int) -> tuple[int, bytes]:
        message = self._messages.pop(0) if self._messages else b""
        return len(message), message

    def consume_input(self) -> None:
        pass


@pytest.mark.parametrize("message", [b"k", b"k" + bytes(7), b"k" + bytes(18), b"w", b"w" + bytes(24), b"x" + bytes(40)])
def test_what_is_no_part_of_a_log_is_one_clear_error(message: bytes) -> None:
    stream = Stream(cast("Connection", Impostor(build.begin(100), message)), 100)
    with pytest.raises(DecodeError, match=rf"{len(message)} bytes that begin with b'{chr(message[0])}'") as error:
        stream.receive(0.0)
    assert "leads to a PostgreSQL server" in (error.value.hint or "")


def test_a_server_that_never_stops_sending_does_not_outlast_a_deadline() -> None:
    reads, writes = os.pipe()
    try:
        os.write(writes, b"N")
        assert ready(reads, select.POLLIN, time.monotonic() + 60.0, -1)
        assert not ready(reads, select.POLLIN, time.monotonic() - 1.0, -1)
    finally:
        os.close(reads)
        os.close(writes)
