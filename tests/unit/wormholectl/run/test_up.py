"""`up` in this process, with stubs for publishers: where it puts things, when it says that it is ready, and who is
refused.

What it does with an embedded ZooKeeper and real publishers: tests/system/test_up.py.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from monitor import supervisor
from monitor.daemon import Monitor
from monitor.processes import find
from monitor.state import LogKey, Phase, PublisherState, SinkKey, SinkState
from tests.support import stub_publisher
from tests.support.eventually import eventually, patience
from wormhole.config import Config, parse
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.model.errors import ConfigError, CoordinationLost
from wormhole.model.replace_file import replace_file
from wormhole.wire.v1 import admin_pb2, push_pb2
from wormholectl.run import up as module
from wormholectl.run.live_log import LiveLog
from wormholectl.run.up import _placed, _Report, _Up, _wait_for_ready, foreground

KEY = LogKey("shop", "main", "db1")
STATIC = """
version = 1
[coordinator]
static = true
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///db1"
host = "another"
[applications.cache]
dataset = "shop"
start = "latest"
subscribers = { s1 = "127.0.0.1:9" }
"""

pytestmark = pytest.mark.allow_blocking("looks at files and at /proc")


def test_what_the_file_does_not_place_goes_into_the_data_folder(tmp_path: Path) -> None:
    placed = _placed(parse(STATIC, "test"), tmp_path)
    assert placed.publisher.state_dir == tmp_path / "state"
    assert placed.monitor_state_dir == tmp_path / "state" / "monitor"
    said = STATIC + '[publisher]\nstate_dir = "/var/x"\n[monitor]\nlisten = "127.0.0.1:7481"\n'
    assert _placed(parse(said, "test"), tmp_path) == parse(said, "test")


def test_a_default_port_that_is_taken_is_replaced_one_that_was_asked_for_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        assert not module._is_free(taken)
        said = STATIC + f'[monitor]\nlisten = "{taken}"\n'
        assert _placed(parse(said, "test"), tmp_path).monitor.listen == taken
        monkeypatch.setattr(module, "_is_free", lambda address: False)
        config = parse(STATIC, "test")
        assert _placed(config, tmp_path).monitor.listen == "127.0.0.1:0"
        monitor = Monitor(config, lambda: config)
        monitor.page = "http://127.0.0.1:9/"
        up = _Up(tmp_path / "shop.toml", None, config, _Report(-1))
        page = next(line for line in up._how_to_go_on(monitor, config).splitlines() if "status page" in line)
        assert page == (
            "  status page  http://127.0.0.1:9/  (127.0.0.1:7480 is in use; `listen` under [monitor] names another "
            "address)"
        )


async def waiting_for(*phases: Phase, configuration: str = "current") -> list[str]:
    config = parse(STATIC, "test")
    monitor = Monitor(config, lambda: config)
    monitor.state.configuration = configuration
    for number, phase in enumerate(phases):
        key = LogKey("shop", "main", f"db{number}")
        problem = "boom" if phase is Phase.GIVEN_UP else ""
        status = admin_pb2.PublisherStatus(log_end=push_pb2.Position(incarnation=1))
        monitor.state.publishers[key] = PublisherState(key, phase, problem=problem, status=status)
    return (await _wait_for_ready(monitor))[0]


async def test_ready_is_when_all_run_or_nothing_is_tried_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await waiting_for(Phase.RUNNING, Phase.RUNNING) == []
    assert await waiting_for() == []
    assert await waiting_for(Phase.RUNNING, Phase.GIVEN_UP) == ["shop/main/db1 is not ready, given up: boom"]
    monkeypatch.setattr(module, "_READY_S", 0.02)
    assert await waiting_for(Phase.STARTING) == ["shop/main/db0 is not ready, starting: its cause is not known"]
    assert await waiting_for(configuration="") == ["the configuration of this host is not known yet"]


async def test_a_sink_that_does_not_run_is_not_ready_and_those_that_run_are_counted(tmp_path: Path) -> None:
    config = parse(STATIC, "test")
    monitor, told, live = Monitor(config, lambda: config), Told(), LiveLog(tmp_path, "monitor")
    monitor.state.configuration = "current"
    for name, phase in (("lines", Phase.RUNNING), ("search", Phase.GIVEN_UP)):
        monitor.state.sinks[SinkKey(name)] = SinkState(SinkKey(name), phase, problem="boom")
    up = _Up(tmp_path / "shop.toml", None, config, told)
    up._folder.mkdir(parents=True)
    await up._tell_ready(monitor, config, live)
    [line] = told.lines
    assert (line["ready"], line["given_up"]) == (False, True)
    assert line["waiting"] == ["sinks/search is not ready, given up: boom"]
    assert str(line["text"]).startswith("0 publishers running, 1 sink running, data in ")


def test_up_runs_every_sink_of_its_file_unless_that_names_some(tmp_path: Path) -> None:
    text = STATIC + "".join(f'[sinks.{name}]\nurl = "jsonlines:///{name}"\n' for name in ("a", "b"))
    assert _placed(parse(text, "test"), tmp_path).monitor.sinks == ("a", "b")
    assert _placed(parse(f'{text}[monitor]\nsinks = ["b"]\n', "test"), tmp_path).monitor.sinks == ("b",)


async def test_a_publisher_that_cannot_read_its_log_is_not_ready_and_its_next_step_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs, but for the log: a stored datamarker is enough for that."""
    config = parse(STATIC, "test")
    monitor, told, live = Monitor(config, lambda: config), Told(), LiveLog(tmp_path, "monitor")
    monitor.state.configuration = "current"
    refused = admin_pb2.Problem(text="the server refuses the account", hint="correct password_file")
    one = PublisherState(KEY, Phase.RUNNING, status=admin_pb2.PublisherStatus(unreadable=refused))
    monitor.state.publishers[KEY] = one
    up = _Up(tmp_path / "shop.toml", None, config, told)
    up._folder.mkdir(parents=True)
    await up._tell_ready(monitor, config, live)
    [line] = told.lines
    assert (line["ready"], line["undo"]) == (False, "correct password_file")
    assert line["waiting"] == ["shop/main/db1 is not ready: the server refuses the account"]
    assert str(line["text"]).startswith("1 publisher running, 0 ready, data in ")
    monkeypatch.setattr(module, "_READY_S", 0.0)
    one.status = admin_pb2.PublisherStatus()  # it has not looked at its log yet
    waiting, step = await _wait_for_ready(monitor)
    assert (len(waiting), step) == (1, "wait a moment")
    one.status.flows.add(flow="cache/db1")  # stored, and known before its log
    assert not module._is_settled(one)
    one.status.log_end.incarnation = 1
    assert module._is_settled(one)


def test_what_a_publisher_that_runs_warns_of_is_shown(tmp_path: Path) -> None:
    """Such as another one that tails the same RocksDB. After "1 publisher running" an operator looks no further."""
    config = parse(STATIC, "test")
    monitor = Monitor(config, lambda: config)
    status = admin_pb2.PublisherStatus(log_end=push_pb2.Position(incarnation=1))
    status.warnings.add(text="process 7 tails it too", hint="stop the one that is not needed")
    monitor.state.publishers[KEY] = PublisherState(KEY, Phase.RUNNING, status=status)
    up = _Up(tmp_path / "shop.toml", None, config, _Report(-1))
    last = up._how_to_go_on(monitor, config).splitlines()[-1]
    assert last == "warning: shop/main/db1: process 7 tails it too. Next: stop the one that is not needed"


@pytest.mark.parametrize(("by", "shown"), [("ann@desk", "ann@desk"), ("", "an operator")])
async def test_on_a_drained_host_it_says_who_drained_it_and_how_to_undo_that(file: Path, by: str, shown: str) -> None:
    config = config_of(file)
    monitor, told, live = Monitor(config, lambda: config), Told(), LiveLog(file.parent, "monitor")
    monitor.state.host, monitor.state.configuration, monitor.state.drained_by = "alpha", "current", by
    monitor.state.publishers[KEY] = PublisherState(KEY, Phase.DRAINED)
    up = _Up(file, None, config, told)
    up._folder.mkdir(parents=True)
    await up._tell_ready(monitor, config, live)
    [line] = told.lines
    assert line["ready"] is False
    assert line["waiting"] == [f"shop/main/db1 is not ready: alpha is drained by {shown}"]
    assert line["undo"] == f"`wormholectl drain alpha --undo -c {file}` when the maintenance is over"
    assert f"Next: {line['undo']}" in live._own


class Told(_Report):
    """What whoever waits for it would read."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.lines: list[dict[str, object]] = []

    def tell(self, **what: object) -> None:
        self.lines.append(what)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(supervisor, "command", stub_publisher.command)
    path = tmp_path / "shop.toml"
    path.write_text(STATIC)
    handlers, level = list(logging.getLogger().handlers), logging.getLogger().level
    yield path
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
    for one in find(tmp_path / ".wormhole/shop/state/monitor/running"):
        os.kill(one.pid, signal.SIGKILL)


def config_of(file: Path) -> Config:
    return parse(file.read_text(), str(file), folder=file.parent)


async def test_who_waits_is_reported_also_when_the_disk_is_full(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()

    def full(path: Path, text: str, *, sync: bool) -> None:
        if '"page": "http' in text:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace_file(path, text, sync=sync)

    monkeypatch.setattr(module, "replace_file", full)
    task = asyncio.create_task(_Up(file, None, config_of(file), told).run())
    await eventually(lambda: told.lines or task.done(), "told")
    [line] = told.lines
    assert line["ready"] is False
    [waiting] = cast("list[str]", line["waiting"])
    assert "up.json cannot be written: No space left on device [file-unwritable]. Next: make room" in waiting
    os.kill(os.getpid(), signal.SIGTERM)
    async with patience():
        await task


async def test_it_runs_every_log_of_its_file_says_how_to_go_on_and_leaves_nothing_running(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told, folder = Told(), file.parent / ".wormhole" / "shop"
    task = asyncio.create_task(_Up(file, None, config_of(file), told).run())
    await eventually(lambda: told.lines or task.done(), "it is ready")
    [line] = told.lines
    assert line["ready"] is True
    text = str(line["text"])
    assert text.startswith(f"1 publisher running, data in {folder}\n")
    written = json.loads((folder / "up.json").read_text())
    assert f"status page  {written['page']}" in text
    assert f'coordinator="{file}"' in text
    assert "applications: cache" in text
    assert f"wormholectl down -f {file}" in text
    assert written["pid"] == os.getpid()
    [publisher] = find(Path(written["monitor"]) / "running")
    assert publisher.key == KEY

    with pytest.raises(ConfigError, match=rf"{file} .*\[already-running\]"):
        await _Up(file, None, config_of(file), Told())._run()

    os.kill(os.getpid(), signal.SIGTERM)
    async with patience():
        await task
    assert find(Path(written["monitor"]) / "running") == []
    assert not (folder / "up.json").exists()
    shown = capsys.readouterr().out
    assert "shop.main.db1 | serving" in shown
    assert "monitor       | 1 publisher running" in shown
    assert f"stopped; the data stays in {folder}" in shown


async def test_the_embedded_zookeeper_gets_the_jars_that_the_file_names(file: Path) -> None:
    text = STATIC.replace("static = true", 'zookeeper_jars = "jars"').replace("subscribers =", "#")
    config = parse(text, str(file), folder=file.parent)
    with pytest.raises(ConfigError, match=f'coordinator.zookeeper_jars = "{file.parent / "jars"}"'):
        async with patience():
            await _Up(file, None, config, Told()).run()


async def test_stopped_before_it_runs_it_just_ends(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = asyncio.Event()

    async def never(self: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(_Up, "_run", never)
    task = asyncio.create_task(_Up(file, None, config_of(file), Told()).run())
    await reached.wait()
    os.kill(os.getpid(), signal.SIGINT)
    async with patience():
        await task


def test_a_wrong_file_is_reported_to_the_process_that_waits(file: Path) -> None:
    file.write_text("version = 2")
    reading, writing = os.pipe()
    with pytest.raises(ConfigError):
        foreground(file, None, writing)
    os.close(writing)
    with os.fdopen(reading) as reports:
        told = json.loads(reports.readline())
    assert told["exit_code"] == 2
    assert "version" in told["failed"]


class Fallible:
    """In the place of the embedded ZooKeeper: ended by itself, and fails to start once."""

    folder = Path("/zk")

    def __init__(self) -> None:
        self.alive, self.starts, self.stops = False, 0, 0

    def stop(self) -> None:
        self.stops += 1

    def start(self) -> None:
        self.starts += 1
        if self.starts == 1:
            raise CoordinationLost("the port is taken", hint="wait")
        self.alive = True


async def test_a_zookeeper_that_ended_is_started_again_until_it_runs(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_CHECK_EVERY_S", 0.01)
    zookeeper = Fallible()
    task = asyncio.create_task(_Up(file, None, config_of(file), Told())._keep(cast("EmbeddedZooKeeper", zookeeper)))
    await eventually(lambda: zookeeper.alive, "it runs")
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (zookeeper.starts, zookeeper.stops) == (2, 2), "one that runs is left alone"
    assert "the embedded ZooKeeper ended by itself" in caplog.text
    assert "the port is taken" in caplog.text
