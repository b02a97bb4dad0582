"""``wormholectl up``: runs all processes that a file describes on one machine, with their data in one folder.

The monitor runs in the process of ``up``. An embedded ZooKeeper is its child and ends with it. If ``up`` is killed, the
publishers continue. The next ``up`` adopts them, and ``down`` (:mod:`wormholectl.run.background`) stops them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Container
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from monitor import log_files
from monitor.daemon import Monitor
from monitor.desired_sinks import desired_sinks
from monitor.folder_lock import FolderLock
from monitor.state import Phase, PublisherState
from wormhole.config import Config, CoordinatorForm
from wormhole.config.check import check_config
from wormhole.coordination.connect import publish_config
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.coordination.up_data_folder import at_embedded, remove_embedded, up_folder, write_embedded
from wormhole.host import logs
from wormhole.host.private_files import keep_private
from wormhole.host.ready_file import process_started
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import ConfigError, WormholeError
from wormhole.model.replace_file import replace_file
from wormhole.wire.conditions import Condition, State, log_condition, other_warnings
from wormholectl.run.live_log import LiveLog
from wormholectl.shared.errors import exit_code
from wormholectl.shared.options import now
from wormholectl.show.printer import counted, print_text

__all__ = ["foreground"]

_log = logging.getLogger(__name__)

_READY_S: Final = 60.0
_CHECK_EVERY_S: Final = 2.0
_SETTLED: Final = {Phase.RUNNING, Phase.GIVEN_UP, Phase.DRAINED}


class _Everything(Container[str]):
    """Contains every dataset. An embedded ZooKeeper has only the datasets of one file, and all are for this host."""

    def __contains__(self, name: object) -> bool:
        return True


def foreground(file: Path, data: Path | None, report_to: int = -1) -> None:
    """Run all processes until Ctrl-C or SIGTERM. ``report_to``: the file descriptor for reports to the process that
    started this one in the background; -1: none.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    import uvloop

    os.environ.setdefault("WORMHOLE_LOG", "text")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    report = _Report(report_to)
    keep_private()
    try:
        config = check_config(file, now())
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_Up(file, data, config, report).run())
    except WormholeError as error:
        report.tell(failed=error.message, hint=error.hint, code=error.code, exit_code=exit_code(error))
        raise


class _Report:
    """Writes lines of JSON to the process that waits for a detached ``up``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        if descriptor >= 0:
            os.set_inheritable(
                descriptor, False
            )  # the pipe must close when this process ends, and not when a publisher ends

    def tell(self, **what: Any) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # the reader may have ended
                os.write(self._descriptor, (json.dumps(what) + "\n").encode())

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _Up:
    def __init__(self, file: Path, data: Path | None, config: Config, report: _Report) -> None:
        self._file = file
        self._folder = up_folder(file, data)
        self._default_folder = self._folder == up_folder(file)
        self._config = _placed(config, self._folder)
        self._taken = config.monitor.listen if self._config.monitor.listen != config.monitor.listen else ""
        self._coordinator = str(file)
        self._report = report
        self._monitor: Monitor | None = None
        self._signals = 0

    async def run(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop, task.cancel)
        try:
            await self._run()
        except asyncio.CancelledError:
            if not self._signals:
                raise
        print_text(f"stopped; the data stays in {self._folder}", flush=True)

    def _stop(self, cancel: Callable[[], object]) -> None:
        self._signals += 1
        if self._monitor is not None and self._signals == 1:
            self._monitor.end()
        else:
            cancel()

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            lock = FolderLock(
                self._folder / "up.lock",
                f"`wormholectl up` of {self._file}",
                f"`wormholectl down -f {self._file}` ends that one; --data gives this one a folder of its own",
            )
            await asyncio.to_thread(lock.__enter__)
            stack.push(lock)
            config, zookeeper = self._config, None
            if config.form is CoordinatorForm.EMBEDDED:
                zookeeper = EmbeddedZooKeeper(
                    self._folder / "zookeeper", private=True, jars=config.coordinator.zookeeper_jars
                )
                stack.push_async_callback(asyncio.to_thread, zookeeper.close)
                await asyncio.to_thread(zookeeper.start)
                embedded = zookeeper.settings
                pointer = await asyncio.to_thread(write_embedded, self._folder, embedded, config.publisher.state_dir)
                if not self._default_folder:
                    self._coordinator = str(pointer)
                stack.push_async_callback(asyncio.to_thread, remove_embedded, self._folder)
                config = config.model_copy(update={"coordinator": at_embedded(config.coordinator, embedded)})
            if config.form is CoordinatorForm.ZOOKEEPER:
                await publish_config(config)
            everything = frozenset(config.datasets) if zookeeper is None else _Everything()
            coordinator = self._coordinator if self._coordinator != str(self._file) else ""
            monitor = Monitor(
                config,
                lambda: config,
                everything=everything,
                sinks=lambda found: desired_sinks(found, self._file, coordinator),
            )
            await asyncio.to_thread(self._write_down, config, "")
            stack.push_async_callback(asyncio.to_thread, (self._folder / "up.json").unlink, missing_ok=True)
            live = LiveLog(config.monitor_state_dir / "logs", "monitor")
            logs.configure("info", json=False)
            own = logging.getLogger()
            live.setFormatter(own.handlers[0].formatter)
            own.handlers[:] = [live]
            self._monitor = monitor
            tasks = [
                asyncio.create_task(live.run(), name="live log"),
                asyncio.create_task(self._keep(zookeeper), name="upkeep"),
                asyncio.create_task(self._tell_ready(monitor, config, live), name="ready"),
            ]
            try:
                await monitor.run()
            finally:
                await cancel_all(*reversed(tasks))

    async def _keep(self, zookeeper: EmbeddedZooKeeper | None) -> None:
        """Keep the log small and ZooKeeper running."""
        output = self._folder / "up.log"
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            with contextlib.suppress(OSError):
                await asyncio.to_thread(log_files.rotate, output)
            if zookeeper is not None and not await asyncio.to_thread(lambda: zookeeper.alive):
                _log.error("the embedded ZooKeeper ended by itself: restarted, see %s", zookeeper.folder)
                try:
                    await asyncio.to_thread(zookeeper.stop)
                    await asyncio.to_thread(zookeeper.start)
                except WormholeError as error:
                    _log.error("%s", error)

    async def _tell_ready(self, monitor: Monitor, config: Config, live: LiveLog) -> None:
        waiting, step = await _wait_for_ready(monitor)
        phases = {one.phase for one in (*monitor.state.publishers.values(), *monitor.state.sinks.values())}
        undo = ""
        if Phase.DRAINED in phases:
            drain = f"wormholectl drain {monitor.state.host} --undo -c {self._coordinator}"
            undo = f"`{drain}` when the maintenance is over"
        try:
            await asyncio.to_thread(self._write_down, config, monitor.page)
        except ConfigError as error:  # a full disk: publishers keep running, and `up --detach` shows it
            waiting.append(str(error))
        text = self._how_to_go_on(monitor, config)
        live.say(text)
        if waiting:
            live.say("\n".join(waiting))
        if undo or step:
            live.say(f"Next: {undo or step}")
        given_up = Phase.GIVEN_UP in phases
        self._report.tell(ready=not waiting, text=text, waiting=waiting, given_up=given_up, undo=undo or step)
        self._report.close()

    def _how_to_go_on(self, monitor: Monitor, config: Config) -> str:
        publishers = monitor.state.publishers.values()
        running = sum(1 for one in publishers if one.phase is Phase.RUNNING)
        ready = sum(map(_serves, publishers))
        sinks = sum(one.phase is Phase.RUNNING for one in monitor.state.sinks.values())
        of_sinks = f"{counted(sinks, 'sink')} running, " if monitor.state.sinks else ""
        coordinator = self._coordinator
        applications = ", ".join(sorted(config.applications)) or "none yet: add [applications.NAME]"
        more = "" if self._default_folder else f" --data {self._folder}"
        state = f" --state-dir {config.publisher.state_dir}" if more else ""
        elsewhere = (
            f"  ({self._taken} is in use; `listen` under [monitor] names another address)" if self._taken else ""
        )
        return (
            f"{counted(running, 'publisher')} running{f', {ready} ready' if ready < running else ''}, "
            f"{of_sinks}"
            f"data in {self._folder}\n"
            f"  status page  {monitor.page}{elsewhere}\n"
            f'  subscribe    with coordinator="{coordinator}" (or WORMHOLE_COORDINATOR={coordinator}); applications: '
            f"{applications}\n"
            f"  look         wormholectl flows -c {coordinator}{state}\n"
            f"  stop         wormholectl down -f {self._file}{more}"
            + "".join(f"\nwarning: {line}" for line in _warnings(monitor))
        )

    def _write_down(self, config: Config, page: str) -> None:
        """Write ``up.json`` for `down`, with the address of the page.

        Raises :class:`~wormhole.model.errors.ConfigError`.
        """
        record = {
            "pid": os.getpid(),
            "started": process_started(os.getpid()),
            "page": page,
            "coordinator": config.coordinator.zookeeper,
            "monitor": str(config.monitor_state_dir),
            "stop_timeout": config.monitor.stop_timeout,
        }
        try:
            replace_file(self._folder / "up.json", json.dumps(record), sync=False)
        except OSError as error:
            raise ConfigError(
                f"{self._folder / 'up.json'} cannot be written: {error.strerror}",
                hint="make room, or name another folder with --data",
                code="file-unwritable",
            ) from error


def _placed(config: Config, folder: Path) -> Config:
    """``config`` with default folders in the data folder, a free port if the default port is taken, and all sinks of
    the file unless the file names the sinks to run.
    """
    if "state_dir" not in config.publisher.model_fields_set:
        config = config.model_copy(
            update={"publisher": config.publisher.model_copy(update={"state_dir": folder / "state"})}
        )
    if "listen" not in config.monitor.model_fields_set and not _is_free(config.monitor.listen):
        config = config.model_copy(update={"monitor": config.monitor.model_copy(update={"listen": "127.0.0.1:0"})})
    if "sinks" not in config.monitor.model_fields_set:
        config = config.model_copy(update={"monitor": config.monitor.model_copy(update={"sinks": tuple(config.sinks)})})
    return config


def _is_free(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True


def _is_settled(publisher: PublisherState) -> bool:
    """Whether the publisher serves, or the reason why it does not serve is known."""
    if publisher.phase is Phase.RUNNING:
        status = publisher.status
        if status is None:
            return not publisher.http  # a publisher without an address is never polled
        # The log is known later than the stored flows. When it is known, so are all warnings.
        state = log_condition(status).state
        return state is not State.STARTING and (state is not State.OK or status.HasField("log_end"))
    return publisher.phase in _SETTLED


def _is_wrong(found: Condition) -> bool:
    return found.fault or found.state is State.STARTING


def _serves(publisher: PublisherState) -> bool:
    """Whether the publisher runs, without a known problem of its log."""
    status = publisher.status
    return publisher.phase is Phase.RUNNING and (status is None or not log_condition(status).fault)


def _warnings(monitor: Monitor) -> list[str]:
    """Other problems that running publishers report, in the form of `wormholectl flows`."""
    return [
        f"{key}: {problem}"
        for key, one in sorted(monitor.state.publishers.items())
        if one.status is not None
        for problem in other_warnings(one.status, log_condition(one.status))
    ]


async def _wait_for_ready(monitor: Monitor) -> tuple[list[str], str]:
    """Wait until all publishers and sinks serve, or the reasons why they do not are known, or a minute has passed.

    Returns sentences about publishers and sinks that do not serve, and the first known next step.
    """
    state = monitor.state
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_READY_S):
            while True:
                seen = state.version
                settled = [*map(_is_settled, state.publishers.values())]
                settled += [one.phase in _SETTLED for one in state.sinks.values()]
                if state.configuration and all(settled):
                    break
                await state.wait(seen)
    if not state.configuration:
        return ["the configuration of this host is not known yet"], ""
    drained = f"{state.host} is drained by {state.drained_by or 'an operator'}"
    waiting, steps = [], []
    for key, one in sorted(state.publishers.items()):
        if one.phase is Phase.DRAINED:
            waiting.append(f"{key} is not ready: {drained}")
        elif one.phase is not Phase.RUNNING:
            waiting.append(f"{key} is not ready, {one.phase.value}: {one.problem or 'its cause is not known'}")
        elif one.status is None and one.http:
            waiting.append(f"{key} is not ready: {one.problem or 'it has not answered yet'}")
        elif one.status is not None and _is_wrong(found := log_condition(one.status)):
            waiting.append(f"{key} is not ready: {found.cause}")
            steps.append(found.next_step)
    for name, sink in sorted(state.sinks.items()):
        if sink.phase is Phase.DRAINED:
            waiting.append(f"{name} is not ready: {drained}")
        elif sink.phase is not Phase.RUNNING:
            waiting.append(f"{name} is not ready, {sink.phase.value}: {sink.problem or 'its cause is not known'}")
    return waiting, next(iter(steps), "")
