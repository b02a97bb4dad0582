"""The supervisor with real processes that stand for publishers: whatever ends, is asked for or is left, and nothing
stays behind."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from monitor import log_files
from monitor import supervisor as module
from monitor.desired_logs import DesiredLog, desired_logs
from monitor.plan import Policy
from monitor.processes import find
from monitor.state import HostState, LogKey, Phase, PublisherState
from monitor.supervisor import Supervisor
from tests.support import stub_publisher
from tests.support.eventually import eventually, patience
from tests.support.host_state import until
from tests.support.present import present
from wormhole.config import parse
from wormhole.host.ready_file import process_started, read_ready, ready_path, write_ready
from wormhole.model.replace_file import replace_file

A, B = LogKey("shop", "main", "a"), LogKey("shop", "main", "b")
POLICY = Policy(first_wait=0.02, longest_wait=0.1, crashes=3, within=60.0, stop_timeout=30.0)

pytestmark = pytest.mark.allow_blocking("looks at files and at /proc")


class Host:
    """A folder, and the monitors that follow each other in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = HostState("h1")
        self.supervisor = Supervisor(self.state, folder / "monitor", POLICY)

    def wanted(self, *logs: str, heartbeat: int = 3) -> dict[LogKey, DesiredLog]:
        text = f'version = 1\n[coordinator]\nstatic = true\n[publisher]\nstate_dir = "{self.folder}"\n'
        text += f'heartbeat = "{heartbeat}s"\n'
        for log in logs:
            text += f'[datasets.shop.copies.main.logs.{log}]\nsource = "rocksdb:///{log}"\n'
        config = parse(text, "test")
        return desired_logs(config, config.datasets)

    def want(self, *logs: str, heartbeat: int = 3, drained: bool = False) -> None:
        self.supervisor.set_desired(self.wanted(*logs, heartbeat=heartbeat), drained=drained)

    def behave(self, how: str) -> None:
        (self.folder / "behaviour").write_text(how)

    def of(self, key: LogKey) -> PublisherState:
        return self.state.publishers[key]

    def phases(self) -> dict[LogKey, Phase]:
        return {key: one.phase for key, one in self.state.publishers.items()}

    def told(self, kind: str) -> list[str]:
        return [event.text for event in self.state.events if event.kind == kind]

    async def running(self, *keys: LogKey) -> None:
        await until(self.state, lambda: self.phases() == dict.fromkeys(keys, Phase.RUNNING))

    async def runs_a(self) -> int:
        """The process of A, which is wanted alone."""
        self.want("a")
        await self.running(A)
        return present(self.of(A).pid)

    def alive(self) -> list[int]:
        return [one.pid for one in find(self.folder / "monitor" / "running")]


@asynccontextmanager
async def living(host: Host) -> AsyncIterator[Host]:
    """A monitor's life in this folder, that ends as by ``kill -9``: nobody is asked to stop."""
    host.state = HostState("h1")
    host.supervisor = Supervisor(host.state, host.folder / "monitor", POLICY)
    await host.supervisor.adopt()
    host.supervisor.may_start(True)
    task = asyncio.create_task(host.supervisor.run())
    try:
        yield host
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await host.supervisor.leave()


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setattr(module, "command", stub_publisher.command)
    host = Host(tmp_path)
    yield host
    for pid in host.alive():
        os.kill(pid, signal.SIGKILL)


async def test_what_is_wanted_runs_and_what_is_no_longer_wanted_ends(host: Host) -> None:
    async with living(host):
        host.want("a", "b")
        assert host.phases() == {A: Phase.STARTING, B: Phase.STARTING}, "who waits for all to run must not see none"
        await host.running(A, B)
        assert host.of(A).admin == "127.0.0.1:1"
        pid, other = host.of(A).pid, host.of(B).pid
        assert set(host.alive()) == {pid, other}
        host.want("b")
        await host.running(B)
        assert host.alive() == [other], "the other one was not touched"
        await host.supervisor.stop()
        assert host.alive() == []
        assert list((host.folder / "monitor" / "running").iterdir()) == []
    assert host.told("stop")[-2:] == [f"process {other} is asked to end: the monitor stops", f"process {other} ended"]


async def test_where_a_publisher_listens_anew_is_read_again(host: Host) -> None:
    """As after it gave its log up: the process is the same, its addresses are not."""
    async with living(host):
        await host.runs_a()
        path = ready_path(host.folder, "shop", "main", "a")
        written = present(read_ready(path))
        write_ready(path, replace(written, admin="127.0.0.1:2", http="127.0.0.1:3"))
        await host.supervisor.read_addresses(A)
        assert (host.of(A).admin, host.of(A).http) == ("127.0.0.1:2", "127.0.0.1:3")
        path.unlink()  # between the two
        await host.supervisor.read_addresses(A)
        assert host.of(A).http == "127.0.0.1:3"
        await host.supervisor.read_addresses(B)
        await host.supervisor.stop()


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 3, f"signal {signal.SIGRTMIN + 3}")]
)
async def test_a_killed_publisher_is_started_again(host: Host, number: int, name: str) -> None:
    async with living(host):
        first = await host.runs_a()
        os.kill(first, number)
        await until(host.state, lambda: host.of(A).phase is Phase.RUNNING and host.of(A).pid != first)
        assert host.of(A).restarts == 1
        assert host.of(A).problem == ""
        assert f"process {first} was killed by {name}: serving; restarted in" in host.told("restart")[0]
        assert process_started(first) is None
        with pytest.raises(ChildProcessError):  # reaped
            os.waitid(os.P_PID, first, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222 - it returns at once
        await host.supervisor.stop()


async def test_a_crash_loop_is_given_up_and_reported_until_the_configuration_changes(host: Host) -> None:
    host.behave("exit 1")
    async with living(host):
        host.want("a")
        await until(host.state, lambda: host.phases() == {A: Phase.GIVEN_UP})
        assert len(host.told("crash_loop")) == 1
        assert host.told("crash_loop")[0].startswith("given up, it ended 3 times within 60 s: ")
        assert host.of(A).problem.endswith("ended with status 1: it is broken [needs-operator]. Next: mend it")
        assert len(host.told("start") + host.told("restart")) == 1 + 2 + 2, "one start, two of three ends, two restarts"
        host.behave("serve")
        host.want("a", heartbeat=5)
        await host.running(A)
        assert host.of(A).problem == ""
        await host.supervisor.stop()


async def test_somebody_may_ask_to_try_again(host: Host) -> None:
    host.behave("exit 2")
    async with living(host):
        host.want("a")
        await until(host.state, lambda: host.phases() == {A: Phase.GIVEN_UP})
        assert host.of(A).restarts == 0, "a wrong request is not repeated"
        assert host.told("crash_loop")[0].startswith("given up, its request is wrong: ")
        host.behave("serve")
        host.supervisor.try_again()
        await host.running(A)
        await host.supervisor.stop()


async def test_another_configuration_is_a_restart_after_the_end_of_the_first(host: Host) -> None:
    async with living(host):
        first = await host.runs_a()
        host.want("a", heartbeat=5)
        await until(host.state, lambda: host.of(A).phase is Phase.RUNNING and host.of(A).pid != first)
        texts = [event.text for event in host.state.events]
        second = host.of(A).pid
        assert texts.index(f"process {first} ended") < texts.index(
            f"process {second} started, configured for this host"
        )
        assert "for another configuration" in host.told("stop")[0]
        assert host.of(A).restarts == 0, "nothing was wrong with it"
        await host.supervisor.stop()


async def test_the_next_monitor_adopts_what_the_one_before_left(host: Host) -> None:
    async with living(host):
        host.want("a", "b")
        await host.running(A, B)
        left = {A: host.of(A).pid, B: host.of(B).pid}
    async with living(host):
        assert host.phases() == {A: Phase.RUNNING, B: Phase.RUNNING}, "before it is known what is wanted"
        assert host.of(A).admin == "127.0.0.1:1"
        # One as it was, one with another configuration.
        host.supervisor.set_desired({A: host.wanted("a")[A], B: host.wanted("b", heartbeat=5)[B]}, drained=False)
        await until(host.state, lambda: host.of(B).phase is Phase.RUNNING and host.of(B).pid != left[B])
        assert host.of(A).pid == left[A]
        assert host.told("adopted") == [f"process {pid} keeps running" for pid in left.values()]
        os.kill(left[A] or 0, signal.SIGKILL)
        await until(host.state, lambda: host.of(A).phase is Phase.RUNNING and host.of(A).pid != left[A])
        await host.supervisor.stop()
        assert host.alive() == []


async def test_one_that_was_not_ready_yet_is_adopted_too_and_what_ended_meanwhile_is_not(host: Host) -> None:
    host.behave("silent")
    async with living(host):
        host.want("a", "b")
        await until(
            host.state, lambda: all(one.pid for one in host.state.publishers.values()) and len(host.phases()) == 2
        )
        assert host.phases() == {A: Phase.STARTING, B: Phase.STARTING}
        kept, gone = host.of(A).pid, host.of(B).pid
        assert gone is not None
    os.kill(gone, signal.SIGKILL)
    await eventually(lambda: process_started(gone) is None, "the process has ended")
    async with living(host):
        assert host.phases() == {A: Phase.STARTING}
        assert host.of(A).pid == kept
        assert len(list((host.folder / "monitor" / "running").iterdir())) == 1, "what nobody uses is cleared away"
        os.kill(kept or 0, signal.SIGKILL)


async def test_a_drained_host_runs_nothing_and_says_what_it_would(host: Host) -> None:
    async with living(host):
        await host.runs_a()
        host.want("a", drained=True)
        await until(host.state, lambda: host.phases() == {A: Phase.DRAINED})
        assert host.state.drained
        assert host.alive() == []
        await host.runs_a()
        await host.supervisor.stop()


async def test_nothing_is_started_before_it_may(host: Host) -> None:
    async with living(host):
        host.supervisor.may_start(False)
        host.want("a")
        await until(host.state, lambda: host.phases() == {A: Phase.STARTING})
        assert host.alive() == []
        host.supervisor.may_start(True)
        await host.running(A)
        await host.supervisor.stop()


async def test_one_that_does_not_end_is_killed(host: Host) -> None:
    host.behave("deaf")
    async with living(host):
        host.supervisor.set_policy(Policy(stop_timeout=0.05))
        pid = await host.runs_a()
        host.want()
        await host.running()
        assert f"process {pid} is killed: it did not end within 0.05 s" in host.told("stop")
        assert host.alive() == []


async def test_who_is_in_a_hurry_does_not_wait_for_one_that_does_not_end(host: Host) -> None:
    host.behave("deaf")
    async with living(host):
        await host.runs_a()
        stopping = asyncio.create_task(host.supervisor.stop())
        await until(host.state, lambda: host.of(A).phase is Phase.STOPPING)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert host.alive() == []


async def test_a_full_disk_is_reported_retried_and_touches_nothing_that_runs(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = threading.Event()

    def replaced(path: Path, data: str) -> None:
        if full.is_set() and path.name.startswith("shop.main.b."):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_file(path, data)

    monkeypatch.setattr(import_module("wormhole.config.load"), "replace_file", replaced)
    async with living(host):
        pid = await host.runs_a()
        logs = host.folder / "monitor" / "logs" / "shop.main.b.log"
        logs.symlink_to("/dev/full")
        full.set()
        host.want("a", "b")
        await until(host.state, lambda: B in host.phases() and host.phases()[B] is Phase.BACKING_OFF)
        assert "it cannot be started" in host.of(B).problem
        assert "No space left on device" in host.of(B).problem
        assert "free space" in host.of(B).problem
        full.clear()
        logs.unlink()
        await host.running(A, B)
        assert host.of(A).pid == pid
        await host.supervisor.stop()


async def test_an_end_is_seen_although_its_file_cannot_be_taken_away(host: Host) -> None:
    async with living(host):
        first = await host.runs_a()
        [file] = (host.folder / "monitor" / "running").iterdir()
        file.unlink()
        file.mkdir()  # root may remove every file, but none a folder this way
        os.kill(first, signal.SIGKILL)
        await until(host.state, lambda: host.of(A).phase is Phase.BACKING_OFF)
        file.rmdir()
        await until(host.state, lambda: host.of(A).phase is Phase.RUNNING and host.of(A).pid != first)
        await host.supervisor.stop()


async def test_large_logs_are_taken_aside(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async with living(host):
        await host.runs_a()
        log = host.folder / "monitor" / "logs" / "shop.main.a.log"
        monkeypatch.setattr(log_files, "rotate", lambda path: os.truncate(path, 0))
        task = asyncio.create_task(host.supervisor.keep_logs_small())
        async with patience():
            while log.stat().st_size:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await host.supervisor.stop()
