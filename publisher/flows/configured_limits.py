"""The configured caps on reading. A change takes effect at once, without a restart."""

from __future__ import annotations

import logging

from caravan.fleet import Fleet, Limits
from publisher.flows.row_scans import RowScans
from wormhole.config import CaravanCaps, DatasetConfig
from wormhole.coordination.port import Coordinator
from wormhole.host.clock import Clock
from wormhole.model.errors import WormholeError
from wormhole.model.units import format_size

__all__ = ["ConfiguredLimits", "limits_of"]

_log = logging.getLogger(__name__)

_RETRY_S = 2.0


def limits_of(caps: CaravanCaps, buffer_bytes: int) -> Limits:
    """The fleet's limits; ``buffer_bytes`` is the memory of the change buffers."""
    return Limits(caps.max, caps.max_read_rate or 0, caps.max_total_read_rate or 0, buffer_bytes)


class ConfiguredLimits:
    """Gives ``fleet`` the caps of its dataset, and ``scans`` the limits on existing rows.

    ``caps``: the present caps; at first the caps with which the publisher started.
    """

    def __init__(
        self, coordinator: Coordinator, dataset: DatasetConfig, fleet: Fleet, scans: RowScans, clock: Clock
    ) -> None:
        self._scans = scans
        self._clock = clock
        self.caps = dataset.caravans
        self._name = dataset.name
        self._coordinator = coordinator
        self._fleet = fleet

    async def run(self) -> None:
        """Follow the configuration until the coordinator stops.

        A dataset that is no longer configured keeps its caps.
        """
        while True:
            try:
                async for datasets in self._coordinator.watch_datasets():
                    dataset = datasets.get(self._name)
                    if dataset is not None and dataset.caravans != self.caps:
                        self._change(dataset.caravans)
                    if dataset is not None:
                        self._scans.change(dataset.existing_rows)
                return
            except WormholeError as error:
                _log.error("the caps on reading cannot be followed, a retry follows: %s", error)
                await self._clock.sleep(_RETRY_S)

    def _change(self, caps: CaravanCaps) -> None:
        cause = f"caps of dataset {self._name}: {_text(self.caps)} -> {_text(caps)}"
        _log.info("%s", cause)
        self.caps = caps
        self._fleet.change_limits(limits_of(caps, self._fleet.limits.buffer_bytes), cause)


def _text(caps: CaravanCaps) -> str:
    one, total = (
        f"{format_size(rate)}/s" if rate else "any rate" for rate in (caps.max_read_rate, caps.max_total_read_rate)
    )
    return f"at most {caps.max} caravans, {one} each, {total} in all"
