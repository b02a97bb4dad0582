"""The order of coming and going (over a real connection: tests/integration/test_sdk_grpc.py)."""

from __future__ import annotations

import asyncio
import signal
import socket
import traceback
from pathlib import Path

import pytest

from subscriber_sdk import RetryPolicy, Subscriber, run, serve, updates
from tests.support.flows import Idle
from tests.support.ports import free_port
from wormhole.config import parse
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import Registration, SubscriberInfo
from wormhole.model.errors import ConfigError, CoordinationLost, UnknownApplication, UsageError

CONFIG = """
version = 1
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///tmp/none"
host = "h"
[applications.app]
dataset = "shop"
start = "latest"
retry = { attempts = 3, longest_wait = "5s" }
"""
CONFIGURED = parse(CONFIG, "test.toml")


@pytest.fixture
async def coordinator() -> MemoryCoordinator:
    coordinator = MemoryCoordinator(MemoryWorld(CONFIGURED))
    await coordinator.start()
    return coordinator


async def test_it_is_registered_while_it_serves(coordinator: MemoryCoordinator) -> None:
    async with serve(Idle(), application="app", id="one", weight=2.0, coordinator=coordinator) as running:
        (info,) = await coordinator.subscribers()
        assert (info.application, info.id, info.address, info.weight) == ("app", "one", running.address, 2.0)
        assert running.flows() == ()
    assert await coordinator.subscribers() == ()
    await coordinator.stop()


async def test_retries_come_from_the_configuration_of_the_application(coordinator: MemoryCoordinator) -> None:
    async with serve(Idle(), application="app", coordinator=coordinator) as running:
        assert running.options.retry == RetryPolicy(attempts=3, longest_wait=5.0)
    async with serve(Idle(), application="app", coordinator=coordinator, retry=7) as running:
        assert running.options.retry == RetryPolicy(attempts=7)
    await coordinator.stop()


async def test_an_unknown_application_is_reported_with_what_to_add(coordinator: MemoryCoordinator) -> None:
    with pytest.raises(UnknownApplication, match=r"applications\.nobody"):
        async with serve(Idle(), application="nobody", coordinator=coordinator):
            pass
    await coordinator.stop()


async def test_an_error_in_the_block_deregisters_too(coordinator: MemoryCoordinator) -> None:
    with pytest.raises(ZeroDivisionError):
        async with serve(Idle(), application="app", coordinator=coordinator):
            raise ZeroDivisionError
    assert await coordinator.subscribers() == ()
    await coordinator.stop()


async def test_stop_wakes_who_waits(coordinator: MemoryCoordinator) -> None:
    async with serve(Idle(), application="app", id="one", coordinator=coordinator) as running:
        waiting = asyncio.create_task(running.stopped())
        running.stop()
        await waiting
        assert running.id == "one"
    await coordinator.stop()


async def test_a_subscriber_without_a_callback_is_refused_before_anything_is_connected() -> None:
    with pytest.raises(TypeError, match="none of on_update, on_updates, on_arrow"):
        async with serve(Subscriber(), application="app", coordinator="nowhere:1/x"):
            pass


async def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match="colour"):
        async with serve(Idle(), application="app", colour="red"):  # type: ignore[call-arg]
            pass
    with pytest.raises(ConfigError, match="no publisher could learn the port"):
        await anext(updates(application="app"))


def file_with(tmp_path: Path, subscribers: str) -> str:
    path = tmp_path / "shop.toml"
    path.write_text(f"{CONFIG}\n[applications.app.subscribers]\n{subscribers}\n")
    return str(path)


async def test_what_a_file_lists_of_a_subscriber_need_not_be_said_again(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    only = file_with(tmp_path, f'one = "{address}"')
    async with serve(Idle(), application="app", coordinator=only) as running:
        assert (running.id, running.address) == ("one", address)
    both = file_with(tmp_path, f'one = "127.0.0.1:1"\ntwo = "{address}"')
    async with serve(Idle(), application="app", id="two", coordinator=both) as running:
        assert (running.id, running.address) == ("two", address)
    with pytest.raises(ConfigError, match=r"WORMHOLE_ID\): one, two"):
        async with serve(Idle(), application="app", coordinator=both):
            pass


def test_a_wrong_request_points_at_the_line_that_made_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        run(Idle(), application="app", coordinator=file_with(tmp_path, 'one = "127.0.0.1:1"'), id="two")
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert [frame.name for frame in frames] == ["test_a_wrong_request_points_at_the_line_that_made_it", "run"]


def test_a_port_that_is_taken_is_one_message(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf'^listen = "{taken}" .*\[address-taken\]') as raised:
            run(Idle(), application="app", listen=taken)
    shown = "".join(traceback.format_exception(raised.value))
    assert shown.count("Traceback") == 1
    assert "server.py" not in shown
    assert capfd.readouterr().err == ""  # nor does gRPC say it in its words


def test_a_signal_while_it_still_waits_to_join_leaves_at_once() -> None:
    """As long as coordination is away, which may be long."""

    class Away(MemoryCoordinator):
        async def register_subscriber(self, info: SubscriberInfo) -> Registration:
            signal.raise_signal(signal.SIGTERM)
            raise CoordinationLost("away")

    async def start(coordinator: MemoryCoordinator) -> MemoryCoordinator:
        await coordinator.start()
        return coordinator

    run(Idle(), application="app", coordinator=asyncio.run(start(Away(MemoryWorld(CONFIGURED)))))
