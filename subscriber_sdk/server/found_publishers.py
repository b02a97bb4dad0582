"""Finds the publishers that a subscriber dials, from the addresses that publishers announce for an application."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from subscriber_sdk.options.subscriber_options import Options
from wormhole.host.tls import is_loopback
from wormhole.model.errors import WormholeError

if TYPE_CHECKING:
    from wormhole.coordination.port import AttachPoint, Coordinator

__all__ = ["FoundPublishers"]

log = logging.getLogger("subscriber_sdk")


class FoundPublishers:
    """The publishers that serve the application, including standbys. Each is dialled, whether or not it owns a log: the
    epochs of assignments decide which publisher may push a shard.
    """

    def __init__(self, coordinator: Coordinator, options: Options) -> None:
        self._coordinator = coordinator
        self._options = options
        self._said: set[str] = set()

    async def addresses(self) -> Collection[str]:
        """The addresses to dial; empty: none is known now."""
        application = self._options.application
        try:
            points = await self._coordinator.attach_points(application)
            flows = await self._coordinator.flows([application])
        except WormholeError as error:
            self._say(f"the publishers cannot be looked up, a retry follows: {error}")
            return ()
        found = {point: address for point in points if (address := self._usable(point))}
        logs = {shard.partition(".")[0] for _, shard in flows} | {point.log for point in points}
        for name in sorted(logs - {point.log for point in found}):
            self._say(
                f"the shards of the log {name} are not served here: no publisher of it announces an address to dial. "
                "Next: start one, with a fixed port in `attach_listen` (`token_listen` with a token and TLS), and with "
                "`attach_advertise` if it listens at every address or on loopback"
            )
        if not logs:
            self._say(f"no publisher of {application} is registered. Next: start one, or name its address in `dial`")
        return tuple(dict.fromkeys(found.values()))

    def _usable(self, point: AttachPoint) -> str:
        """The address at which this subscriber may dial the publisher; empty: there is none."""
        options = self._options
        certified = options.tls is not None and options.tls.cert is not None
        address = point.address if certified or not options.token else point.token_address
        if address and options.tls is None and not is_loopback(address) and (options.token or not options.insecure):
            self._say(f"the publisher at {address} is not dialled without TLS. Next: configure tls and publishers")
            return ""
        return address

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)
