"""What should run on this host, from the coordination service while it answers and from disk while it does not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Final

from monitor.last_good import LastGood
from monitor.state import HostEvent, HostState, LogKey
from monitor.supervisor import Supervisor
from monitor.wanted import wanted_logs
from wormhole.config import Config, CoordinatorForm, DatasetConfig, listed, unlisted
from wormhole.coordination import Contact, Coordinator, HostWish, MonitorInfo, connect, warn
from wormhole.coordination.patience import patiently
from wormhole.model.errors import CoordinationLost, WormholeError

__all__ = ["Follower"]

_log = logging.getLogger(__name__)

# A ZooKeeper that is well answers in a fraction of this; then nothing is started that is not wanted any more.
_FIRST_ANSWER_S: Final = 3.0
_RETRY_S: Final = 1.0
_TELL_EVERY_S: Final = 1.0
_AWAY: Final = (Contact.SUSPENDED.value, Contact.LOST.value)


class Follower:
    """Follows one configuration of this host (``config``, with its coordinator) until it is cancelled.

    ``folder``: where the last good configuration is kept. ``everything``: see :func:`monitor.wanted.wanted_logs`.
    ``address``: of the status page, told to others.
    """

    def __init__(
        self,
        config: Config,
        state: HostState,
        supervisor: Supervisor,
        folder: Path,
        address: str,
        everything: Container[str] | None = None,
        make: Callable[[Config], Coordinator] = connect,
    ) -> None:
        self._config = config
        self._state = state
        self._supervisor = supervisor
        self._kept = folder / "last-good.json"
        self._address = address
        self._everything = everything
        self._coordinator = make(config)
        self._static = config.form is CoordinatorForm.STATIC
        self._datasets: Mapping[str, DatasetConfig] | None = None
        self._wish: HostWish | None = None
        self._contact = ""
        self._keeping = asyncio.Lock()
        self._stored: LastGood | None = None
        self._warned = ""

    async def run(self) -> None:
        """Follow. Raises :class:`~wormhole.model.errors.ConfigError` when another monitor speaks for this host."""
        try:
            self._stored = None if self._static else await asyncio.to_thread(LastGood.load, self._kept)
        except WormholeError as error:
            _log.error("%s", error)
        fallback = asyncio.create_task(self._fall_back(), name="last good configuration")
        try:
            await self._connect()
            await warn(self._coordinator, _log)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_contact(), name="contact")
                group.create_task(self._register(), name="register the monitor")
                group.create_task(self._follow_datasets(), name="datasets")
                group.create_task(self._follow_wish(), name="host's wish")
        finally:
            fallback.cancel()
            await asyncio.gather(fallback, return_exceptions=True)
            await self._coordinator.stop()

    async def _connect(self) -> None:
        while True:
            try:
                return await self._coordinator.start()
            except CoordinationLost as error:
                self._told(Contact.LOST.value, error.message)
                await asyncio.sleep(_RETRY_S)

    async def _fall_back(self) -> None:
        """Work from disk when nothing was heard for some time."""
        await asyncio.sleep(_FIRST_ANSWER_S)
        if self._datasets is not None and self._wish is not None:
            return
        if self._stored is None:
            self._state.configuration = "none: ZooKeeper does not answer, and nothing is kept on disk"
            self._state.changed()
            return
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._stored.read_at))
        self._decided(
            self._stored.datasets, self._stored.drained, f"last good one, of {when}: ZooKeeper does not answer"
        )
        self._supervisor.may_start(True)

    async def _follow_contact(self) -> None:
        async for contact in self._coordinator.watch_contact():
            self._told("static" if self._static else contact.value)

    def _told(self, coordination: str, why: str = "") -> None:
        if coordination == self._contact:
            return
        self._contact = self._state.coordination = coordination
        text = f"{coordination}{f': {why}' if why else ''}"
        if coordination in _AWAY:
            text += "; this host goes on with the configuration that was read last"
        _log.log(logging.WARNING if coordination in _AWAY else logging.INFO, "coordination: %s", text)
        self._state.tell(HostEvent(time.time(), "coordination", "", text))

    async def _register(self) -> None:
        state = self._state
        registration = await patiently(lambda: self._coordinator.register_monitor(self._info()), "the monitor")
        self._supervisor.may_start(True)
        told = self._info()
        try:
            while True:
                seen = state.version
                if (info := self._info()) != told:
                    await self._coordinator.update_monitor(info)
                    told = info
                await state.wait(seen)
                await asyncio.sleep(_TELL_EVERY_S)
        finally:
            with contextlib.suppress(WormholeError):
                await registration.close()

    def _info(self) -> MonitorInfo:
        phases = {str(key): one.phase.name.lower() for key, one in self._state.publishers.items()}
        return MonitorInfo(self._state.host, os.getpid(), self._address, self._state.started, phases)

    async def _follow_datasets(self) -> None:
        async for datasets in self._coordinator.watch_datasets():
            if not datasets and await self._was_emptied():
                continue
            self._datasets = datasets
            await self._heard()

    async def _was_emptied(self) -> bool:
        """Whether the coordination service knows nothing although this host has been told something: then it is not
        obeyed.
        """
        known = self._datasets or (self._stored.datasets if self._stored is not None else None)
        if self._static or not known:
            return False
        while True:
            try:
                stored = await self._coordinator.configuration()
                break
            except CoordinationLost:
                await asyncio.sleep(_RETRY_S)
        if stored.version > 0:
            return False
        text = (
            "ZooKeeper holds no configuration at all, although this host has one: it goes on with that. "
            "Next: `wormholectl config apply`; or remove last-good.json and restart the monitor, to stop everything"
        )
        _log.error("%s", text)
        self._state.tell(HostEvent(time.time(), "config", "", text))
        return True

    async def _follow_wish(self) -> None:
        async for wish in self._coordinator.watch_host(self._state.host):
            if self._wish is not None and wish.drained != self._wish.drained:
                text = f"{'drained' if wish.drained else 'in service again'}{f', by {wish.by}' if wish.by else ''}"
                _log.info("this host is %s", text)
                self._state.tell(HostEvent(time.time(), "drained", "", text))
            self._wish = wish
            await self._heard()

    async def _heard(self) -> None:
        if self._datasets is None or self._wish is None:
            return
        now = time.time()
        where = "the file" if self._static else f"ZooKeeper, read {time.strftime('%H:%M:%S', time.localtime(now))}"
        self._decided(self._datasets, self._wish.drained, f"current, from {where}")
        if not self._static:
            await self._keep()

    async def _keep(self) -> None:
        """Write down what is true now; one at a time, so that the last one stays."""
        async with self._keeping:
            assert self._datasets is not None
            assert self._wish is not None
            read = LastGood(self._datasets, self._wish.drained, time.time())
            if self._stored is not None and _same(read, self._stored):
                return
            try:
                await asyncio.to_thread(read.store, self._kept)
                self._stored = read
            except OSError as error:
                text = (
                    f"{self._kept} cannot be written ({error.strerror}): "
                    "without ZooKeeper the next start runs an older configuration"
                )
                _log.error("%s. Next: make room on that disk", text)
                self._state.tell(HostEvent(time.time(), "config", "", text))

    def _decided(self, datasets: Mapping[str, DatasetConfig], drained: bool, where: str) -> None:
        wanted = wanted_logs(self._config, datasets, everything=self._everything)
        self._supervisor.want(wanted, drained=drained)
        self._state.configuration = where
        self._warn(datasets, wanted)
        names = ", ".join(map(str, sorted(wanted))) or "no log"
        text = f"{where}: {names} here"
        _log.info("configuration: %s", text)
        self._state.tell(HostEvent(time.time(), "config", "", text))

    def _warn(self, datasets: Mapping[str, DatasetConfig], wanted: Container[LogKey]) -> None:
        """Say which whole sources are taken from where others may write."""
        if listed(self._config) is not None:
            return
        found = [name for name in unlisted(self._config, datasets) if LogKey(*name.split("/")) in wanted]
        text = (
            f"the source of {', '.join(sorted(found))} comes from ZooKeeper: who can write there can have this host "
            "read a file or "
            "dial an address. Next: `wormholectl hosts adopt -c FILE` with the file of this monitor"
        )
        if found and text != self._warned:
            _log.warning("%s", text)
            self._state.tell(HostEvent(time.time(), "config", "", text))
            self._warned = text


def _same(one: LastGood, other: LastGood) -> bool:
    return one.datasets == other.datasets and one.drained == other.drained
