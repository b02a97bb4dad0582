"""The monitor's process. This module joins the supervisor, the status poller, coordination and the status page.

``wormholectl monitor run`` calls :func:`run`; ``wormholectl up`` runs a :class:`Monitor` in its own process.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Container, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from monitor.config_follower import ConfigFollower, Desired
from monitor.desired_logs import desired_logs
from monitor.desired_sinks import DesiredSink, desired_sinks
from monitor.folder_lock import FolderLock
from monitor.metrics import add_routes as add_metrics
from monitor.plan import Policy
from monitor.state import HostState, SinkKey
from monitor.status_poller import StatusPoller
from monitor.supervisor import Supervisor
from monitor.web import add_routes as add_page
from wormhole.config import Config, DatasetConfig, load
from wormhole.host.http_server import serve, url
from wormhole.host.private_files import keep_private
from wormhole.host.tls import open_trust
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import WormholeError

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["Monitor", "run"]

_log = logging.getLogger(__name__)


class Monitor:
    """Runs this host's publishers and sinks. ``read``: reads the configuration again after :meth:`reload`.

    ``leave``: whether publishers keep running when the monitor ends. ``everything``: see
    :func:`monitor.desired_logs.desired_logs`. ``environment``: the environment of the publishers and sinks. ``sinks``:
    returns the sinks that a configuration requires.
    """

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config],
        *,
        leave: bool = False,
        everything: Container[str] | None = None,
        environment: Mapping[str, str] | None = None,
        sinks: Callable[[Config], Mapping[SinkKey, DesiredSink]] = lambda _: {},
    ) -> None:
        self.state = HostState(config.monitor.host_name)
        self.page = ""
        """The status page's URL, once :meth:`run` has called ``ready``."""
        self._config = config
        self._trust: Trust | None = None
        self._read = read
        self._leave = leave
        self._everything = everything
        self._sinks = sinks
        self._folder = config.monitor_state_dir.absolute()
        self._supervisor = Supervisor(self.state, self._folder, _policy(config), environment)
        self._end = asyncio.Event()
        self._reload = asyncio.Event()

    def end(self) -> None:
        """Make :meth:`run` end. It then stops the publishers, or leaves them running (``leave``)."""
        self._end.set()

    def reload(self) -> None:
        """Read the configuration again, and retry publishers that were given up."""
        self._reload.set()

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Run the publishers of this host until :meth:`end`. ``ready``: called when the page answers and running
        publishers are adopted.

        If this call is cancelled while it stops publishers, it kills them. Raises
        :class:`~wormhole.model.errors.WormholeError`; then no started process runs any more.
        """
        config = self._config
        async with AsyncExitStack() as stack:
            lock = FolderLock(self._folder / "monitor.lock", "a monitor")
            await asyncio.to_thread(lock.__enter__)
            stack.push(lock)
            self._trust = await asyncio.to_thread(open_trust, config.tls)
            server = await serve(
                self._application(),
                config.monitor.listen,
                trust=self._trust,
                insecure=config.insecure,
                setting="monitor.listen",
                names=[config.monitor.host_name],
            )
            stack.push_async_callback(server.close)
            self.page = url(server.address, config.tls, "/")
            first = self._follower(config)
            await self._supervisor.adopt()
            try:
                await self._until_end(first, ready)
            except BaseExceptionGroup as group:
                # Several tasks may have ended together. The first known error names the next step.
                known = group.subgroup(WormholeError)
                raise (_leaf(group) if known is None else _leaf(known)) from group
            finally:
                await self._stop_or_leave()  # after an error; without one, `_until_end` did this already

    async def _until_end(self, first: ConfigFollower, ready: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as group:
            supervising = group.create_task(self._supervisor.run(), name="supervisor")
            others = [
                group.create_task(self._follow(first), name="configuration"),
                group.create_task(self._supervisor.keep_logs_small(), name="logs"),
                group.create_task(
                    StatusPoller(self.state, self._trust, self._supervisor.read_addresses).run(), name="status poller"
                ),
            ]
            ready()
            await self._end.wait()
            supervising.cancel()
            # The registration ends last, so that no other monitor begins here before the publishers have ended.
            await self._stop_or_leave()
            for task in others:
                task.cancel()

    async def _stop_or_leave(self) -> None:
        await (self._supervisor.leave() if self._leave else self._supervisor.stop())

    async def _follow(self, follower: ConfigFollower) -> None:
        while True:
            following = asyncio.create_task(follower.run(), name="follower")
            reload = asyncio.create_task(self._reload.wait(), name="reload")
            try:
                await asyncio.wait((following, reload), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    return following.result()
                self._reload.clear()
                another = await self._read_again()
            finally:
                await cancel_all(reload, following)
            follower = another

    async def _read_again(self) -> ConfigFollower:
        self._supervisor.try_again()
        try:
            config = await asyncio.to_thread(self._read)
            follower = self._follower(config)
        except WormholeError as error:
            _log.error("the configuration stays as it was: %s", error)
            self.state.report("config", f"stays as it was: {error.message}")
            return self._follower(self._config)
        old = self._config
        if (config.monitor.listen, config.monitor_state_dir, config.monitor.host_name, config.tls) != (
            (old.monitor.listen, old.monitor_state_dir, old.monitor.host_name, old.tls)
        ):
            _log.warning(
                "a change of host, state_dir or listen under [monitor], or of [tls], needs a restart of the monitor"
            )
        self._config = config
        self._supervisor.set_policy(_policy(config))
        return follower

    def _follower(self, config: Config) -> ConfigFollower:
        sinks = self._sinks(config)

        def desired(datasets: Mapping[str, DatasetConfig]) -> Desired:
            return desired_logs(config, datasets, everything=self._everything), sinks

        return ConfigFollower(config, self.state, self._supervisor, self._folder, self.page, desired)

    def _application(self) -> web.Application:
        app = web.Application()
        add_metrics(app, self.state, self._trust)
        add_page(app, self.state)
        return app


def _policy(config: Config) -> Policy:
    restart = config.monitor.restart
    return Policy(
        restart.first_wait, restart.longest_wait, restart.crashes, restart.within, config.monitor.stop_timeout
    )


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def run(path: Path, *, leave: bool = False) -> None:
    """Run this host's publishers until SIGTERM or SIGINT. SIGHUP reads the file at ``path`` again and retries
    publishers that were given up.

    A second SIGTERM kills publishers that do not end. Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    keep_private()
    # Python's own event loop is sufficient here. uvloop would use 2 MB more memory.
    asyncio.run(_until_signalled(load(path), path, leave))


async def _until_signalled(config: Config, path: Path, leave: bool) -> None:
    monitor = Monitor(config, lambda: load(path), leave=leave, sinks=lambda found: desired_sinks(found, path))
    running = asyncio.ensure_future(
        monitor.run(lambda: _log.info("monitor of host %s, status page %s", monitor.state.host, monitor.page))
    )
    loop = asyncio.get_running_loop()
    signals: list[int] = []

    def stop(number: int) -> None:
        signals.append(number)
        if len(signals) == 1:
            monitor.end()
        else:
            running.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, monitor.reload)
    try:
        await running
    except asyncio.CancelledError:
        _log.warning("stopped at the second signal: publishers that had not ended were killed")
    else:
        _log.info("stopped%s", "; publishers keep running" if leave else "")
