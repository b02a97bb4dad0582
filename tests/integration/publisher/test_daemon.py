"""The process: what stops it from starting is one clear error, and what stops it leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from publisher import daemon
from publisher.flows.ownership import LogHandedOver
from publisher.stores.markers import LocalMarkerStore
from tests.support.clocks import ScriptedClock
from tests.support.eventually import patience
from tests.support.marked import MARK, listening, marked
from tests.support.otel import read, reader
from tests.support.rocks_writer import RocksWriter
from tests.support.scripted_subscriber import scripted_subscriber
from tests.system.harness.programs import WORMHOLECTL
from wormhole.admin import admin_service
from wormhole.config import Config, load, parse
from wormhole.config.one_log import digest
from wormhole.host.ready_file import read_ready, ready_path
from wormhole.model.errors import ConfigError, MarkerStoreError, Retryable, SourceUnavailable, WormholeError
from wormhole.ports.marker_store import StoredFlow
from wormhole.wire.markers import marker_from_message
from wormholectl.config.running import differences_from_running

LOG = ("shop", "main", "db1")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksWriter]:
    writer = RocksWriter(tmp_path / "store")
    yield writer
    writer.exit()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def otel(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    with reader(monkeypatch) as sdk:
        yield sdk


def toml(database: RocksWriter, state: Path, *, publisher: str = "", subscriber: str = "127.0.0.1:9") -> str:
    return f"""
version = 1
[coordinator]
static = true
[publisher]
state_dir = "{state}"
{publisher}
[datasets.shop]
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{database.path}"
[applications.app]
dataset = "shop"
start = "earliest"
subscribers = {{ s1 = "{subscriber}" }}
"""


def configured(database: RocksWriter, state: Path, **settings: str) -> Config:
    return parse(toml(database, state, **settings), "test")


def ready(address: str) -> None:
    pytest.fail(f"it serves at {address}")


def made(state: Path) -> bool:
    return state.exists()


async def refused(config: Config, log: str = "db1") -> WormholeError:
    """The error with which it does not start."""
    async with patience():
        with pytest.raises(WormholeError) as caught:
            await daemon.serve(config, "shop", "main", log, ready)
    return caught.value


async def readyz(address: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/readyz") as answer:
        return await answer.text()


# --- what stops it from starting


async def test_a_log_that_is_not_configured_is_reported_with_those_that_are(database: RocksWriter, state: Path) -> None:
    error = await refused(configured(database, state), "db2")
    assert isinstance(error, ConfigError)
    assert "db2" in str(error)
    assert "db1" in str(error)
    assert not made(state), "something was made before the request was understood"


@pytest.mark.parametrize("obstacle", ["a file in the way", "no right to write"])
async def test_a_folder_that_cannot_be_made_is_reported(database: RocksWriter, tmp_path: Path, obstacle: str) -> None:
    if obstacle == "a file in the way":
        (tmp_path / "here").write_text("")
        state = tmp_path / "here" / "state"
    else:
        state = Path("/proc/state")  # refused to root, too
    error = await refused(configured(database, state))
    assert isinstance(error, ConfigError)
    assert f"publisher.state_dir: {state}/shop/main/db1 cannot be made" in error.message
    assert "state_dir under [publisher]" in str(error.hint)


async def test_it_does_not_listen_beyond_this_machine_without_tls(database: RocksWriter, state: Path) -> None:
    error = await refused(configured(database, state, publisher='admin_listen = "0.0.0.0:0"'))
    assert isinstance(error, ConfigError)
    assert 'publisher.admin_listen = "0.0.0.0:0"' in error.message
    assert not made(state)


async def test_an_address_that_is_taken_is_reported_and_everything_is_given_back(
    database: RocksWriter, state: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        error = await refused(configured(database, state, publisher=f'admin_listen = "{taken}"'))
    assert isinstance(error, ConfigError)
    assert taken in error.message
    assert error.hint == "another process listens there (`ss -ltnp` names it): end it, or choose another port"
    store = LocalMarkerStore(state / "shop/main/db1")
    await asyncio.to_thread(store.open)  # the lock was given back
    await asyncio.to_thread(store.close)


async def test_a_second_publisher_of_the_log_is_refused_and_names_the_first(database: RocksWriter, state: Path) -> None:
    store = LocalMarkerStore(state / "shop/main/db1")
    await asyncio.to_thread(store.open)
    try:
        error = await refused(configured(database, state))
    finally:
        await asyncio.to_thread(store.close)
    assert isinstance(error, MarkerStoreError)
    assert f"in use by process {os.getpid()}" in error.message
    assert "one publisher serves a log" in str(error.hint)


async def test_what_cannot_say_that_it_serves_does_not_serve(database: RocksWriter, state: Path) -> None:
    (state / "shop/main/db1/publisher.json").mkdir(parents=True)
    error = await refused(configured(database, state))
    assert isinstance(error, Retryable)
    assert f"{state}/shop/main/db1/publisher.json cannot be written" in error.message
    assert "state_dir under [publisher]" in str(error.hint)


@pytest.mark.allow_blocking("looks at files")
async def test_a_datastore_that_is_away_is_waited_for_by_a_publisher_that_answers(
    database: RocksWriter, state: Path, otel: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(daemon, "warn_interpreted", warned.append)
    database.put(b"k", b"v")
    away = database.path.with_name("away")
    await asyncio.to_thread(database.path.rename, away)
    serves: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(daemon.serve(configured(database, state), *LOG, serves.set_result))
    try:
        async with patience():
            admin = await serves
        assert (await asyncio.to_thread(admin_service.describe, admin)).log == "db1"
        assert warned == ["datastores"]
        http = read_ready(ready_path(state, *LOG))
        assert http is not None
        assert "the log cannot be opened: there is no directory" in await readyz(http.http)
        await asyncio.to_thread(away.rename, database.path)
        async with patience():
            while await readyz(http.http) != "ready\n":  # noqa: ASYNC110 - asked over HTTP
                await asyncio.sleep(0.05)
        exported = await asyncio.to_thread(read, otel)
        assert exported["wormhole_publisher_ready", *LOG] == 1
        assert exported["wormhole_marker_write_seconds_count", *LOG] >= 0
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert await asyncio.to_thread(read, otel) == {}


# --- one clear error out of many


async def _broken(*parts: object) -> None:
    first = SourceUnavailable("the store is gone", hint="start it")
    raise ExceptionGroup("tasks", [RuntimeError("followed"), ExceptionGroup("inner", [first, ConfigError("later")])])


async def test_of_several_errors_the_first_known_one_is_reported(
    database: RocksWriter, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "serve", _broken)
    with pytest.raises(SourceUnavailable, match="the store is gone") as caught:
        await daemon._until_signalled(configured(database, state), *LOG)
    assert isinstance(caught.value.__cause__, ExceptionGroup), "where it came from is kept for whoever debugs"


async def test_errors_that_nobody_knows_are_not_hidden(
    database: RocksWriter, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*parts: object) -> None:
        raise ExceptionGroup("tasks", [RuntimeError("a fault of ours")])

    monkeypatch.setattr(daemon, "serve", broken)
    with pytest.raises(ExceptionGroup, match="tasks"):
        await daemon._until_signalled(configured(database, state), *LOG)


# --- after a hand-over


@pytest.mark.parametrize(("gone", "rests_s"), [(False, 1.0), (True, 0.0)])
async def test_who_hands_its_log_over_lets_the_next_owner_begin(
    database: RocksWriter, state: Path, monkeypatch: pytest.MonkeyPatch, gone: bool, rests_s: float
) -> None:
    """Where the log may be another's already, it tries at once: nobody may have taken it."""
    scripted, begun = ScriptedClock(), list[float]()

    async def serves(*parts: object) -> None:
        begun.append(scripted.now)
        if len(begun) > 1:
            raise ConfigError("the second one ends it")
        raise LogHandedOver("moved", gone=gone)

    monkeypatch.setattr(daemon, "_serve", serves)
    with pytest.raises(ConfigError):
        await daemon.serve(configured(database, state), *LOG, clock=scripted.clock)
    assert begun == [1000.0, 1000.0 + rests_s]


# --- the process itself


class Running:
    """``wormholectl publisher run`` in a process of its own, marked so that what it leaves behind is found."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str, output: Path) -> None:
        self.process, self.mark, self.output = process, mark, output

    @classmethod
    async def start(cls, config: Path) -> Running:
        mark, output = uuid.uuid4().hex, config.with_suffix(".out")
        with output.open("ab") as stream:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                WORMHOLECTL,
                *("publisher", "run", "-c", str(config)),
                env={**os.environ, MARK: mark},
                stdout=stream,
                stderr=stream,
            )
        return cls(process, mark, output)

    def listens(self) -> set[str]:
        return listening(marked(self.mark))

    async def ended(self) -> int:
        async with patience():
            return await self.process.wait()

    def told(self) -> str:
        return self.output.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it(
    database: RocksWriter, state: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    stopped: list[bool] = []

    async def serves(*parts: object) -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    monkeypatch.setattr(daemon, "serve", serves)
    try:
        await daemon._until_signalled(configured(database, state), *LOG)
    finally:
        for one in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(one)
    assert stopped == [True]


@pytest.mark.allow_blocking("looks at files and at /proc")
async def test_a_signal_stores_what_was_acknowledged_and_leaves_nothing(
    database: RocksWriter, state: Path, tmp_path: Path
) -> None:
    """A second process of the log ends with one message meanwhile, and does not disturb the first one."""
    database.put(b"k", b"v")
    async with scripted_subscriber("app", "s1") as s1:
        config, other = tmp_path / "shop.toml", tmp_path / "other.toml"
        for one in (config, other):
            one.write_text(toml(database, state, subscriber=s1.address, publisher='heartbeat = "20s"'))
        running = await Running.start(config)
        try:
            await s1.hears_later("hello")
            flow = await s1.accepts(await s1.hears("assign"))
            await s1.processed(await s1.hears("batch"))
            offered = await s1.hears("datamarker")
            assert running.listens() == {"127.0.0.1"}
            told = read_ready(ready_path(state, *LOG))
            assert told is not None
            assert told.pid == running.process.pid
            assert told.config == digest(load(config), *LOG)
            assert await asyncio.to_thread(differences_from_running, config) == ((), ())
            assert admin_service.describe(told.admin).log == "db1"
            second = await Running.start(other)
            assert await second.ended() == 1
            assert f"in use by process {running.process.pid}" in second.told()
            assert "next: one publisher serves a log" in second.told()
            assert "Traceback" not in second.told()
            assert running.process.returncode is None
            assert s1.connections == 1
            running.process.terminate()
            revoke = await s1.hears_later("revoke")
            assert revoke.revoke.cause == "the publisher stops"
            await s1.acks(offered)  # after the signal: it still counts
            await s1.releases(flow)
            assert await running.ended() == 0, running.told()
        finally:
            if running.process.returncode is None:
                running.process.kill()
                await running.ended()
    assert marked(running.mark) == {}
    assert not ready_path(state, *LOG).exists()
    assert "Traceback" not in running.told()
    store = LocalMarkerStore(state / "shop/main/db1")
    store.open()  # it let go of the lock
    [record] = [found for (_, shard), found in store.load("app").items() if shard == "db1"]
    store.close()
    assert isinstance(record, StoredFlow)
    assert record.marker == marker_from_message(offered.datamarker.marker)
