"""What a server may send that is no answer: nonsense, without end, or byte by byte.

All of it is a server that is away."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from datastores.mysql import source as source_module
from datastores.mysql.server import bounded_connection as module
from datastores.mysql.server.connection import connect, query, reading_answers
from datastores.mysql.source import MySqlSource
from tests.fuzz.mutate import mutate
from tests.support.hostile_mysql import STATEMENTS, HostileServer, greeting, packets, serving
from tests.unit.datastores.mysql.server.test_connection import server
from wormhole.model.errors import DecodeError, SourceUnavailable, WormholeError
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import SourceOptions

LONG = "WORMHOLE_ROUNDS" in os.environ
_OTHER = packets([payload for _, payloads in STATEMENTS for payload in payloads], 1)


def damaging(seed: int, number: int) -> Callable[[int, bytes], bytes]:
    """Damage to the answer of that number."""
    rng = random.Random(seed)

    def damage(at: int, data: bytes) -> bytes:
        if at != number:
            return data
        changed = data
        while changed == data:
            changed = mutate(rng, data, _OTHER)
        return changed

    return damage


def told(error: WormholeError) -> None:
    assert error.hint, str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize("kind", [KeyError, IndexError, ValueError, TypeError, DecodeError])
def test_rows_of_another_form_are_a_documented_error(kind: type[Exception]) -> None:
    with pytest.raises(SourceUnavailable) as error, reading_answers("the server's settings"):
        raise kind("of the damaged answer")
    told(error.value)
    assert error.value.code == "peer-not-database"


@pytest.mark.parametrize("stage", range(4), ids=["greeting", "authentication", "settings", "answer"])
def test_a_damaged_answer_is_a_documented_error(stage: int) -> None:
    refused: list[WormholeError] = []
    for seed in range(4_000 if LONG else 60):
        with serving(damaging(seed, stage)) as hostile:
            try:
                connection = connect(hostile.address)
                try:
                    query(connection, STATEMENTS[seed % len(STATEMENTS)][0] or "SELECT 1")
                finally:
                    if connection.open:
                        connection.close()
            except WormholeError as error:
                told(error)
                refused.append(error)
    assert sum(isinstance(error, SourceUnavailable) for error in refused) > len(refused) // 2


def use(hostile: HostileServer, folder: Path) -> WormholeError | None:
    """All that a publisher does with a source; the first error of it."""
    options = SourceOptions("log", folder, Sharding("table"), max_update_bytes=1 << 20, disk_budget=1 << 20)
    source = MySqlSource(f"mysql://u:secret@127.0.0.1:{hostile.address.port}/?tls=off", options)
    try:
        source.start()
        source.status()
        source.latest()
        marker = source.earliest()
        source.locate(f"{marker.order.incarnation}/2/4")
        reader = source.open(marker)
        for _ in range(4):
            reader.read(1 << 20, 0.0)
        source.open(source.latest())
    except WormholeError as error:
        return error
    finally:
        source.stop()
    return None


def test_an_honest_server_is_read_to_its_end(tmp_path: Path) -> None:
    with serving() as honest:
        error = use(honest, tmp_path)
        assert error is None or "closed the binlog stream" in str(error)


def test_a_source_survives_every_damaged_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_POLL_S", 3600.0)  # a look amid the others would change the numbers of answers
    with serving() as honest:
        use(honest, tmp_path / "honest")
        answers = honest.answers
    assert answers > 40
    for seed in range(3_000 if LONG else 120):
        with serving(damaging(seed, seed % answers)) as hostile:
            error = use(hostile, tmp_path / str(seed))
        if error is not None:
            told(error)
            # Whatever the control connection brings passes by itself or says what to set; the log alone may be damaged.
            assert not isinstance(error, DecodeError) or error.position is not None, str(error)


@pytest.mark.parametrize("said", [b"", greeting() * 600], ids=["zeros", "a greeting"])
def test_a_server_that_answers_byte_by_byte_does_not_stretch_the_time(said: bytes) -> None:
    # It goes on for as long as somebody listens: without a deadline for the whole this takes longer than a test may.
    data = packets([said or bytes(60_000)], 0)
    gone = threading.Event()

    def drip(client: socket.socket) -> None:
        with suppress(OSError):
            for at in range(len(data)):
                client.sendall(data[at : at + 1])
                gone.wait(0.02)

    with server(drip) as address, pytest.raises(SourceUnavailable, match="no answer in time") as error:
        connect(address, timeout_s=0.2)
    told(error.value)


def test_an_answer_byte_by_byte_does_not_stretch_the_time_of_a_statement() -> None:
    def damage(number: int, data: bytes) -> bytes:
        return data if number < 4 else data[:10]

    with serving(damage) as hostile:
        connection: Any = connect(hostile.address)
        ours, theirs = socket.socketpair()
        connection._sock.close()
        connection._sock, connection._rfile = ours, ours.makefile("rb")
        over = threading.Event()

        def drip() -> None:
            with suppress(OSError):
                theirs.sendall(packets([bytes(60_000)], 1)[:4])
                while not over.wait(0.002):
                    theirs.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(SourceUnavailable, match="SELECT 1: no answer in time"):
                query(connection, "SELECT 1", within_s=0.2)
            assert not connection.open, "what still comes would be taken for the next answer"
        finally:
            over.set()
            thread.join()
            theirs.close()


def test_an_answer_without_end_is_given_up_at_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ANSWER_BYTES", 1 << 20)
    head, column, end, row = STATEMENTS[-1][1][:4]
    rows = packets([head, column, end, *[row] * 10_000], 1)
    with serving(lambda number, data: data if number < 4 else rows) as hostile:
        connection = connect(hostile.address)
        with pytest.raises(SourceUnavailable, match="larger than it may be") as error:
            query(connection, "SELECT 1")
        told(error.value)
        assert not connection.open


def test_what_a_greeting_announces_is_not_waited_for() -> None:
    with (
        server(lambda client: client.sendall(b"\xff\xff\xff\0")) as address,
        pytest.raises(SourceUnavailable, match="larger than it may be"),
    ):
        connect(address)
