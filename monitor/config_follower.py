"""Follows this host's configuration in the coordination service. While the service does not answer at the start, the
configuration comes from disk."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Container, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from monitor.desired_logs import DesiredLog
from monitor.desired_sinks import DesiredSink
from monitor.last_good_config import LastGoodConfig
from monitor.state import HostState, LogKey, SinkKey
from monitor.supervisor import Supervisor
from wormhole.config import Config, CoordinatorForm, DatasetConfig, listed, unlisted
from wormhole.coordination.connect import connect, warn
from wormhole.coordination.port import Contact, Coordinator, HostRequest, MonitorInfo
from wormhole.coordination.retry import retry_during_outage
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import CoordinationLost, WormholeError

__all__ = ["ConfigFollower", "Desired"]

_log = logging.getLogger(__name__)

# Seconds to wait for ZooKeeper before the configuration on disk is used. A healthy ZooKeeper answers much faster. The
# wait avoids that publishers are started which are no longer configured.
_FIRST_ANSWER_S: Final = 3.0
_RETRY_S: Final = 1.0
_UPDATE_EVERY_S: Final = 1.0
_AWAY: Final = (Contact.SUSPENDED.value, Contact.LOST.value)


Desired = tuple[Mapping[LogKey, DesiredLog], Mapping[SinkKey, DesiredSink]]
"""The logs and the sinks of a host."""


class ConfigFollower:
    """Follows the datasets of one host, from the coordinator in ``config``, until it is cancelled.

    ``folder``: the folder of the last good configuration. ``address``: the registered address of the status page.
    ``desired``: returns the logs and sinks that this host runs for the given datasets.
    """

    def __init__(
        self,
        config: Config,
        state: HostState,
        supervisor: Supervisor,
        folder: Path,
        address: str,
        desired: Callable[[Mapping[str, DatasetConfig]], Desired],
        make: Callable[[Config], Coordinator] = connect,
    ) -> None:
        self._config = config
        self._state = state
        self._supervisor = supervisor
        self._file = folder / "last-good.json"
        self._address = address
        self._desired = desired
        self._coordinator = make(config)
        self._static = config.form is CoordinatorForm.STATIC
        self._datasets: Mapping[str, DatasetConfig] | None = None
        self._request: HostRequest | None = None
        self._contact = ""
        self._storing = asyncio.Lock()
        self._stored: LastGoodConfig | None = None
        self._warned = ""

    async def run(self) -> None:
        """Follow until cancelled. Raises :class:`~wormhole.model.errors.ConfigError` for a second monitor of a host."""
        try:
            self._stored = None if self._static else await asyncio.to_thread(LastGoodConfig.load, self._file)
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
                group.create_task(self._follow_requests(), name="whether the host is drained")
        finally:
            await cancel_all(fallback)
            await self._coordinator.stop()

    async def _connect(self) -> None:
        while True:
            try:
                return await self._coordinator.start()
            except CoordinationLost as error:
                self._set_contact(Contact.LOST.value, error.message)
                await asyncio.sleep(_RETRY_S)

    async def _fall_back(self) -> None:
        """Use the configuration on disk if the coordination service does not answer for some time."""
        await asyncio.sleep(_FIRST_ANSWER_S)
        if self._datasets is not None and self._request is not None:
            return
        if self._stored is None:
            self._state.configuration = "none: ZooKeeper does not answer, and no configuration is stored on disk"
            self._state.changed()
            return
        when = f"{datetime.fromtimestamp(self._stored.read_at).astimezone():%Y-%m-%d %H:%M:%S}"
        self._apply(self._stored.datasets, self._stored.drained, f"last good one, of {when}: ZooKeeper does not answer")
        self._supervisor.may_start(True)

    async def _follow_contact(self) -> None:
        async for contact in self._coordinator.watch_contact():
            self._set_contact("static" if self._static else contact.value)

    def _set_contact(self, coordination: str, why: str = "") -> None:
        if coordination == self._contact:
            return
        self._contact = self._state.coordination = coordination
        text = f"{coordination}{f': {why}' if why else ''}"
        if coordination in _AWAY:
            text += "; this host continues with the configuration that was read last"
        _log.log(logging.WARNING if coordination in _AWAY else logging.INFO, "coordination: %s", text)
        self._state.report("coordination", text)

    async def _register(self) -> None:
        registration = await retry_during_outage(
            lambda: self._coordinator.register_monitor(self._info()), "the monitor"
        )
        self._supervisor.may_start(True)
        registered = self._info()
        try:
            while True:
                seen = self._state.version
                if (info := self._info()) != registered:
                    await self._coordinator.update_monitor(info)
                    registered = info
                await self._state.wait(seen)
                await asyncio.sleep(_UPDATE_EVERY_S)
        finally:
            with contextlib.suppress(WormholeError):
                await registration.close()

    def _info(self) -> MonitorInfo:
        phases = {str(key): one.phase.label for key, one in self._state.publishers.items()}
        return MonitorInfo(self._state.host, os.getpid(), self._address, self._state.started, phases)

    async def _follow_datasets(self) -> None:
        async for datasets in self._coordinator.watch_datasets():
            if not datasets and await self._was_emptied():
                continue
            self._datasets = datasets
            await self._changed()

    async def _was_emptied(self) -> bool:
        """Whether the coordination service lost its configuration: it has none, and this host received one before. Then
        the empty configuration is ignored.
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
        self._report_config(
            "ZooKeeper holds no configuration at all, although this host has one: the host continues with its own. "
            "Next: `wormholectl config apply`; or remove last-good.json and restart the monitor, to stop everything",
            logging.ERROR,
        )
        return True

    async def _follow_requests(self) -> None:
        async for request in self._coordinator.watch_host(self._state.host):
            if self._request is not None and request.drained != self._request.drained:
                by = f", by {request.by}" if request.by else ""
                text = f"{'drained' if request.drained else 'in service again'}{by}"
                _log.info("this host is %s", text)
                self._state.report("drained", text)
            self._request = request
            self._state.drained_by = request.by if request.drained else ""
            await self._changed()

    async def _changed(self) -> None:
        if self._datasets is None or self._request is None:
            return
        now = datetime.fromtimestamp(self._state.clock.wall()).astimezone()
        source = "the file" if self._static else f"ZooKeeper, read {now:%H:%M:%S}"
        self._apply(self._datasets, self._request.drained, f"current, from {source}")
        if not self._static:
            await self._store()

    async def _store(self) -> None:
        """Store the current configuration on disk. Writes do not overlap, so that the newest configuration stays."""
        async with self._storing:
            assert self._datasets is not None
            assert self._request is not None
            read = LastGoodConfig(self._datasets, self._request.drained, self._state.clock.wall())
            if read == self._stored:
                return
            try:
                await asyncio.to_thread(read.store, self._file)
                self._stored = read
            except OSError as error:
                self._report_config(
                    f"{self._file} cannot be written ({error.strerror}): without ZooKeeper the next start runs an "
                    "older configuration. Next: free space on that disk",
                    logging.ERROR,
                )

    def _apply(self, datasets: Mapping[str, DatasetConfig], drained: bool, source: str) -> None:
        logs, sinks = self._desired(datasets)
        self._supervisor.set_desired(logs, sinks, drained=drained)
        self._state.configuration = source
        self._warn(datasets, logs)
        names = ", ".join(sorted(map(str, [*logs, *sinks]))) or "no log"
        self._report_config(f"{source}: {names} here", logging.INFO)

    def _warn(self, datasets: Mapping[str, DatasetConfig], desired: Container[LogKey]) -> None:
        """Warn about sources that only ZooKeeper defines, because other processes may write there."""
        if listed(self._config) is not None:
            return
        found = [name for name in unlisted(self._config, datasets) if LogKey(*name.split("/")) in desired]
        text = (
            f"the source of {', '.join(sorted(found))} comes from ZooKeeper: every process that can write there can "
            "make this host read a file or dial an address. Next: `wormholectl hosts adopt -c FILE` with the file of "
            "this monitor"
        )
        if found and text != self._warned:
            self._report_config(text, logging.WARNING)
            self._warned = text

    def _report_config(self, text: str, level: int) -> None:
        _log.log(level, "configuration: %s", text)
        self._state.report("config", text)
