"""The applications whose subscribers dial this publisher. They are followed by standbys too, so that a subscriber is
connected to a standby before it takes the log over.
"""

from __future__ import annotations

from collections.abc import Mapping

from publisher.flows.assigner import Assigner
from publisher.flows.served_applications import ServedApplications
from publisher.push.attach_tokens import AttachTokens
from publisher.push.attached import AttachedSubscribers
from wormhole.config import ApplicationConfig

__all__ = ["DiallingApplications"]


class DiallingApplications:
    """See the module."""

    def __init__(
        self,
        served: ServedApplications,
        tokens: AttachTokens,
        assigner: Assigner,
        attached: AttachedSubscribers,
    ) -> None:
        self._served = served
        self._tokens = tokens
        self._assigner = assigner
        self._attached = attached
        self._dialling: Mapping[str, ApplicationConfig] = {}
        served.changed = self._changed

    def config(self, name: str) -> ApplicationConfig | None:
        """The configuration of an application whose subscribers dial; ``None``: there is none of that name."""
        return self._dialling.get(name)

    async def run(self) -> None:
        """Follow the configuration until cancelled."""
        try:
            await self._served.run()
        finally:
            await self._tokens.stop()

    def _changed(self, applications: Mapping[str, ApplicationConfig]) -> None:
        former = self._dialling
        self._dialling = {name: config for name, config in applications.items() if config.connect == "publisher"}
        self._tokens.follow(self._dialling)
        for name in former.keys() | self._dialling.keys():
            config = applications.get(name)
            if config is None:
                self._assigner.forgotten(name)
            elif config != former.get(name):
                self._assigner.application(config)
        if self._dialling:
            self._attached.wanted.set()
