"""The stores of datamarkers: in a local file, in ZooKeeper, or in memory (port :mod:`wormhole.ports.marker_store`)."""

from __future__ import annotations

from publisher.stores.markers.local import LocalMarkerStore
from publisher.stores.markers.memory import MemoryMarkers, MemoryMarkerStore
from publisher.stores.markers.zookeeper import ZooKeeperMarkerStore
from wormhole.config import Config
from wormhole.model.errors import ConfigError
from wormhole.ports.marker_store import MarkerStore

__all__ = [
    "LocalMarkerStore",
    "MemoryMarkerStore",
    "MemoryMarkers",
    "ZooKeeperMarkerStore",
    "open_store",
]


def open_store(config: Config, dataset: str, copy: str, log: str, *, zookeeper: str = "") -> MarkerStore:
    """Open the store that ``config.publisher.markers`` names, for one log.

    The folder of a ``local`` store is ``<state_dir>/<dataset>/<copy>/<log>``. ``zookeeper``: the ``host:port/root`` of
    an embedded ZooKeeper, if the configuration names none. Blocks. Raises
    :class:`~wormhole.model.errors.MarkerStoreError`,
    :class:`~wormhole.model.errors.CoordinationLost` or :class:`~wormhole.model.errors.ConfigError`.
    """
    store: MarkerStore
    match config.publisher.markers:
        case "local":
            store = LocalMarkerStore(config.publisher.state_dir / dataset / copy / log)
        case "memory":
            store = MemoryMarkerStore()
        case "zookeeper":
            settings = config.coordinator
            if not settings.zookeeper:
                settings = settings.model_copy(update={"zookeeper": zookeeper})
            if not settings.zookeeper:
                raise ConfigError(
                    'publisher.markers = "zookeeper" needs a ZooKeeper, and the configuration names none',
                    hint='set coordinator.zookeeper, or publisher.markers = "local"',
                )
            store = ZooKeeperMarkerStore(settings, log)
    store.open()
    return store
