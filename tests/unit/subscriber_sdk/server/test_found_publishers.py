"""Which of the announced publishers are dialled, and which log is reported as not served."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.server.found_publishers import FoundPublishers
from wormhole.config import TlsAuthority, TlsFiles
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import AttachPoint, FlowRecord

AUTHORITY = TlsAuthority(ca=Path("ca.pem"))
CERTIFICATE = TlsFiles(cert=Path("c.pem"), key=Path("k.pem"), ca=Path("ca.pem"))
NEAR, FAR = "127.0.0.1:7490", "db-1:7490"


@pytest.fixture
async def coordinator() -> AsyncIterator[MemoryCoordinator]:
    one = MemoryCoordinator()
    await one.start()
    yield one
    await one.stop()


async def announce(coordinator: MemoryCoordinator, *points: AttachPoint) -> None:
    for point in points:
        await coordinator.register_attach("app", point)


async def found(coordinator: MemoryCoordinator, **options: Any) -> list[str]:
    publishers = ("db1",) if "tls" in options else ()
    settings = Options("app", coordinator="zk:2181/x", publishers=publishers, **options)
    return list(await FoundPublishers(coordinator, settings).addresses())


async def test_the_owner_and_those_that_stand_by_are_dialled(coordinator: MemoryCoordinator) -> None:
    await announce(coordinator, AttachPoint("db1", "main@a", NEAR), AttachPoint("db1", "main@b", "127.0.0.1:7590"))
    await coordinator.register_attach("other", AttachPoint("db1", "main@a", "127.0.0.1:7690"))
    assert await found(coordinator) == [NEAR, "127.0.0.1:7590"]


async def test_a_token_over_tls_goes_to_the_address_for_tokens(coordinator: MemoryCoordinator) -> None:
    await announce(coordinator, AttachPoint("db1", "main@a", FAR, "db-1:7491"))
    assert await found(coordinator, tls=AUTHORITY, token="wormhole_x") == ["db-1:7491"]
    assert await found(coordinator, tls=CERTIFICATE, token="wormhole_x") == [FAR]
    assert await found(coordinator, tls=CERTIFICATE) == [FAR]


async def test_without_tls_nothing_is_sent_to_other_hosts(
    coordinator: MemoryCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    await announce(coordinator, AttachPoint("db1", "main@a", FAR, FAR))
    assert await found(coordinator) == []
    assert await found(coordinator, insecure=True, token="wormhole_x") == []
    assert "without TLS" in caplog.text
    assert await found(coordinator, insecure=True) == [FAR]


async def test_a_log_that_nobody_can_dial_is_named_once(
    coordinator: MemoryCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await announce(coordinator, AttachPoint("db1", "main@a", NEAR), AttachPoint("db2", "main@a"))
    await coordinator.write_flows({("app", "db3.users"): FlowRecord("p", "", 3, "unassigned")})
    finding = FoundPublishers(coordinator, Options("app", coordinator="zk:2181/x"))
    for _ in range(2):
        assert list(await finding.addresses()) == [NEAR]
    assert [line.count("not served") for line in caplog.messages] == [1, 1]
    assert {name for name in ("db1", "db2", "db3") if f"log {name} " in caplog.text} == {"db2", "db3"}


async def test_without_contact_nothing_is_known(
    coordinator: MemoryCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    assert await found(coordinator) == []
    assert "no publisher of app" in caplog.text
    coordinator.suspend()
    assert await found(coordinator) == []
    assert "[coordination-lost]" in caplog.text
