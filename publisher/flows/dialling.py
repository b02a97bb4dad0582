"""Follows the applications whose subscribers dial this publisher. A standby follows them too, so that their subscribers
are connected to it before it takes the log over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from publisher.flows.assigner import Assigner
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.served_applications import ServedApplications
from publisher.push.attach_tokens import AttachTokens
from publisher.push.attached import AttachedSubscribers
from wormhole.config import ApplicationConfig
from wormhole.coordination.port import Registration
from wormhole.coordination.retry import retry_during_outage

__all__ = ["DiallingApplications"]


class DiallingApplications:
    """See the module. ``announce`` registers where subscribers of an application dial this publisher."""

    def __init__(
        self,
        served: ServedApplications,
        tokens: AttachTokens,
        assigner: Assigner,
        attached: AttachedSubscribers,
        announce: Callable[[str], Awaitable[Registration]],
    ) -> None:
        self._served = served
        self._tokens = tokens
        self._assigner = assigner
        self._attached = attached
        self._announce = announce
        self._announced: dict[str, asyncio.Task[None]] = {}
        self._background = BackgroundTasks()
        self._dialling: Mapping[str, ApplicationConfig] = {}
        served.changed = self._changed

    def config(self, name: str) -> ApplicationConfig | None:
        """The configuration of an application whose subscribers dial; ``None`` for any other name."""
        return self._dialling.get(name)

    async def run(self) -> None:
        """Follow the configuration until cancelled."""
        try:
            await self._served.run()
        finally:
            await self._tokens.stop()
            await self._background.stop()

    def _changed(self, applications: Mapping[str, ApplicationConfig]) -> None:
        former = self._dialling
        self._dialling = {name: config for name, config in applications.items() if config.connect == "publisher"}
        self._tokens.follow(self._dialling)
        for name in former.keys() - self._dialling.keys():
            self._announced.pop(name).cancel()
        for name in self._dialling.keys() - former.keys():
            self._announced[name] = self._background.spawn(self._keep_announced(name), f"announce-{name}")
        for name in former.keys() | self._dialling.keys():
            config = applications.get(name)
            if config is None:
                self._assigner.forgotten(name)
            elif config != former.get(name):
                self._assigner.application(config)
        if self._dialling:
            self._attached.wanted.set()

    async def _keep_announced(self, application: str) -> None:
        register = partial(self._announce, application)
        registration = await retry_during_outage(register, f"the address for subscribers of {application}")
        try:
            await asyncio.Event().wait()
        finally:
            await registration.close()
