"""The monitor's process: the one module that joins supervisor, watcher, coordination and the status page.

``wormholectl monitor run`` calls :func:`run`; ``wormholectl up`` runs a :class:`Monitor` in its own process.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Container, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from monitor.exposition import add_routes as add_metrics
from monitor.follower import Follower
from monitor.lock import FolderLock
from monitor.plan import Policy
from monitor.state import HostEvent, HostState
from monitor.supervisor import Supervisor
from monitor.watcher import Watcher
from monitor.web import add_routes as add_page
from wormhole.config import Config, load
from wormhole.host.http_server import serve, url
from wormhole.host.private_files import keep_private
from wormhole.host.tls import open_trust
from wormhole.model.errors import WormholeError

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["Monitor", "run"]

_log = logging.getLogger(__name__)


class Monitor:
    """What runs this host's publishers. ``read``: reads the configuration again when :meth:`reload` asks for it.

    ``leave``: publishers go on when the monitor ends. ``everything``: see :func:`monitor.wanted.wanted_logs`.
    ``environment``: of the publishers.
    """

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config],
        *,
        leave: bool = False,
        everything: Container[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.state = HostState(config.monitor.host_name)
        self.page = ""
        """Where the status page is, once :meth:`run` told that it is ready."""
        self._config = config
        self._trust: Trust | None = None
        self._read = read
        self._leave = leave
        self._everything = everything
        self._folder = config.monitor_state_dir.absolute()
        self._supervisor = Supervisor(self.state, self._folder, _policy(config), environment)
        self._end = asyncio.Event()
        self._reload = asyncio.Event()

    def end(self) -> None:
        """Ask :meth:`run` to end: by stopping the publishers, or leaving them, as was said."""
        self._end.set()

    def reload(self) -> None:
        """Read the configuration again, and try again what was given up."""
        self._reload.set()

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Run what is wanted here until :meth:`end`; ``ready`` is told when the page answers and what ran before is
        adopted.

        Cancelled while it stops publishers, it kills them. Raises :class:`~wormhole.model.errors.WormholeError`: then
        nothing was started, or all of it is stopped.
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
                # Of what ended several tasks together, the first known error says what to do; the rest followed from
                # it.
                known = group.subgroup(WormholeError)
                raise (_leaf(group) if known is None else _leaf(known)) from group
            finally:
                # Only what an error left: `_until_end` did it already where there was none.
                await (self._supervisor.leave() if self._leave else self._supervisor.stop())

    async def _until_end(self, first: Follower, ready: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(self._supervisor.run(), name="supervisor")
            others = [
                group.create_task(self._follow(first), name="configuration"),
                group.create_task(self._supervisor.keep_logs_small(), name="logs"),
                group.create_task(Watcher(self.state, self._trust).run(), name="watcher"),
            ]
            ready()
            await self._end.wait()
            keeping.cancel()
            # Still registered, so that nobody else begins here before the publishers have ended.
            await (self._supervisor.leave() if self._leave else self._supervisor.stop())
            for task in others:
                task.cancel()

    async def _follow(self, follower: Follower) -> None:
        while True:
            following = asyncio.create_task(follower.run(), name="follower")
            asked = asyncio.create_task(self._reload.wait(), name="reload")
            try:
                await asyncio.wait((following, asked), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    return following.result()
                self._reload.clear()
                another = await self._read_again()
            finally:
                asked.cancel()
                following.cancel()
                await asyncio.gather(following, asked, return_exceptions=True)
            follower = another

    async def _read_again(self) -> Follower:
        self._supervisor.try_again()
        try:
            config = await asyncio.to_thread(self._read)
            follower = self._follower(config)
        except WormholeError as error:
            _log.error("the configuration stays as it was: %s", error)
            self.state.tell(HostEvent(time.time(), "config", "", f"stays as it was: {error.message}"))
            return self._follower(self._config)
        old = self._config
        if (config.monitor.listen, config.monitor_state_dir, config.monitor.host_name, config.tls) != (
            (old.monitor.listen, old.monitor_state_dir, old.monitor.host_name, old.tls)
        ):
            _log.warning("host, state_dir, listen under [monitor] and [tls] take a restart of the monitor")
        self._config = config
        self._supervisor.follow(_policy(config))
        return follower

    def _follower(self, config: Config) -> Follower:
        return Follower(config, self.state, self._supervisor, self._folder, self.page, self._everything)

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
    """Run this host's publishers until SIGTERM or SIGINT. SIGHUP reads the file at ``path`` again and tries again what
    was given up.

    A second SIGTERM kills publishers that do not end. Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    keep_private()
    # Python's own event loop: it does little here, and uvloop would take 2 MB.
    asyncio.run(_until_signalled(load(path), path, leave))


async def _until_signalled(config: Config, path: Path, leave: bool) -> None:
    monitor = Monitor(config, lambda: load(path), leave=leave)
    running = asyncio.ensure_future(
        monitor.run(lambda: _log.info("monitor of host %s, status page %s", monitor.state.host, monitor.page))
    )
    loop = asyncio.get_running_loop()
    asked: list[int] = []

    def stop(number: int) -> None:
        asked.append(number)
        if len(asked) == 1:
            monitor.end()
        else:
            running.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, monitor.reload)
    try:
        await running
    except asyncio.CancelledError:
        _log.warning("stopped in a hurry: publishers that had not ended were killed")
    else:
        _log.info("stopped%s", "; publishers go on" if leave else "")
