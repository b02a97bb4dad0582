"""What the static form does where the others ask a service; the rest is in `tests/contract/test_coordinator.py`."""

from __future__ import annotations

import math

import pytest

from tests.contract.test_coordinator import CANDIDATE, DB1, GROUP, STATIC, A, config, silent, soon
from tests.support.eventually import patience
from wormhole.coordination.connect import publish_config
from wormhole.coordination.port import MoveRequest, SubscriberInfo
from wormhole.coordination.static import StaticCoordinator
from wormhole.model.errors import ConfigError


async def test_static_subscribers_are_those_of_the_file_whether_they_registered_or_not() -> None:
    static = StaticCoordinator(config(STATIC))
    await static.start()
    assert [info.id for info in await soon(static.watch_subscribers("cache"))] == ["a", "b"]
    entry = await static.register_subscriber(A)
    await entry.close()
    assert [info.id for info in await static.subscribers()] == ["a", "b"], (
        "closing tells nobody: there is nobody to tell"
    )
    await static.stop()


async def test_static_refuses_a_subscriber_at_another_address_than_the_file_says() -> None:
    static = StaticCoordinator(config(STATIC))
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:7001") as caught:
        await static.register_subscriber(SubscriberInfo("cache", "a", "127.0.0.1:9999"))
    assert 'a = "127.0.0.1:9999"' in str(caught.value.hint)
    assert 'listen = "127.0.0.1:7001"' in str(caught.value.hint)


async def test_static_refuses_an_unlisted_subscriber_with_the_listed_names() -> None:
    static = StaticCoordinator(config("\n".join(line for line in STATIC.splitlines() if not line.startswith("allow"))))
    assert list(static.listed("cache")) == ["a", "b"]
    assert static.listed("nobody") == {}
    with pytest.raises(ConfigError, match="does not list it") as caught:
        await static.register_subscriber(SubscriberInfo("cache", "host-17", "127.0.0.1:9999"))
    assert "WORMHOLE_ID): a, b;" in str(caught.value.hint)
    assert 'host-17 = "127.0.0.1:9999"' in str(caught.value.hint)


async def test_static_has_nothing_that_expires_and_nowhere_to_publish_to() -> None:
    static = StaticCoordinator(config(STATIC))
    assert static.lease_s() == math.inf
    with pytest.raises(ConfigError, match="static"):
        await publish_config(config(STATIC), static)


async def test_static_elects_no_owners() -> None:
    static = StaticCoordinator(config(STATIC))
    await static.start()
    for refused in (
        static.register_candidate(GROUP, CANDIDATE),
        static.own_log(GROUP, DB1, server="", why=""),
        static.request_move(GROUP, MoveRequest("main@host1", "eve", 1.0)),
    ):
        with pytest.raises(ConfigError, match="static form elects no owner"):
            await refused
    assert await static.log_owners() == {}
    waiting = await silent(static.watch_log(GROUP))
    await static.stop()
    async with patience():
        with pytest.raises(StopAsyncIteration):
            await waiting
