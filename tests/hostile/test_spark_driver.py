"""What another user of the machine reaches of a local Spark: its files, its ports, its gateway."""

from __future__ import annotations

import contextlib
import socket
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.eventually import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESPONSE, _FAILURE = 4, 5  # kinds of frames of Spark's own protocol, which is Java's serialization inside


def test_only_the_user_may_enter_a_folder_that_has_rows(spark: SparkSession) -> None:
    from pyspark import StorageLevel

    rows = spark.createDataFrame([("a secret",)], "v string").persist(StorageLevel.DISK_ONLY)
    try:
        assert rows.count() == 1
        places = spark.sparkContext.getConf().get("spark.local.dir", "").split(",")
        kept = [file for place in places for file in Path(place).rglob("rdd_*")]
        assert kept
        assert {stat.S_IMODE(Path(place).stat().st_mode) for place in places} == {0o700}
        jvm: Any = spark.sparkContext._jvm
        temporary = Path(jvm.java.lang.System.getProperty("java.io.tmpdir"))
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o700
    finally:
        rows.unpersist()


@pytest.mark.parametrize("setting", ["spark.driver.port", "spark.blockManager.port"])
def test_a_message_without_the_secret_is_not_deserialized(spark: SparkSession, setting: str) -> None:
    """As of a forged result of a task, which Spark would hand to ``pickle``. The reply to what it took in would have
    the object's text."""
    if setting == "spark.driver.port":
        port = int(spark.sparkContext.getConf().get(setting, "0"))
    else:
        context: Any = spark.sparkContext._jsc
        port = int(context.sc().getExecutorMemoryStatus().keys().head().rpartition(":")[2])
    body = b"\0\x01" + _text("127.0.0.1") + struct.pack(">I", port) + _text("endpoint-verifier")
    kind, reply = _asked(port, body + b"\xac\xed\x00\x05t" + _text("forged"))
    assert kind == _FAILURE
    assert b"sasl" in reply.lower()
    assert b"forged" not in reply


def test_the_gateway_of_the_jvm_wants_its_token(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    port = gateway.gateway_parameters.port if hasattr(gateway, "gateway_parameters") else gateway.java_parameters.port
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(b"c\nj\nrj\norg.apache.spark.\ne\n")
        assert client.recv(100).startswith(b"!x"), "it is asked for its token"
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(100) == b"", "the connection is closed"


def test_nothing_listens_but_on_loopback(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert conf.get("spark.ui.enabled") == "false"
    assert conf.get("spark.authenticate") == "true"
    assert not conf.contains("spark.authenticate.secret"), "it would be in the arguments, which everybody may list"


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _asked(port: int, body: bytes) -> tuple[int, bytes]:
    """The kind and the body of the reply to a request."""
    frame = struct.pack(">bqi", 3, 7, len(body)) + body
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(struct.pack(">q", 8 + len(frame)) + frame)
        with client.makefile("rb") as replies:
            (size,) = struct.unpack(">q", replies.read(8))
            return replies.read(1)[0], replies.read(size - 9)
