"""Who is there and what should run: one port, three forms (ZooKeeper, static, memory)."""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import ValidationError

from wormhole.config import Config, CoordinatorConfig, CoordinatorForm, load
from wormhole.config.server_url import without_password
from wormhole.coordination.differences import Difference, Differences, differences
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import (
    HISTORY_KEPT,
    ConfigChange,
    Contact,
    Coordinator,
    FlowRecord,
    HistoryEntry,
    HostWish,
    MonitorInfo,
    PublisherInfo,
    Registration,
    StoredConfig,
    SubscriberInfo,
)
from wormhole.coordination.rules import nowhere_to_publish
from wormhole.coordination.static import StaticCoordinator
from wormhole.coordination.up_folder import embedded_coordinator
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.errors import ConfigError
from wormhole.who import who as made_by

__all__ = [
    "HISTORY_KEPT",
    "ConfigChange",
    "Contact",
    "Coordinator",
    "Difference",
    "Differences",
    "FlowRecord",
    "HistoryEntry",
    "HostWish",
    "MemoryCoordinator",
    "MemoryWorld",
    "MonitorInfo",
    "PublisherInfo",
    "Registration",
    "StaticCoordinator",
    "StoredConfig",
    "SubscriberInfo",
    "ZooKeeperCoordinator",
    "connect",
    "differences",
    "publish_config",
]


def connect(target: str | Path | Config, *, session_timeout: float | None = None) -> Coordinator:
    """The coordinator that ``target`` names, not started yet.

    ``target``: a configuration, the path of a configuration file (a text that ends in ``.toml`` or ``.json``, or a
    :class:`~pathlib.Path`; read at once), or ZooKeeper as ``"zk1:2181,zk2:2181/root"``. A file that names no ZooKeeper means the one
    that ``wormholectl up`` embeds for it. ``session_timeout`` (seconds) replaces the configured one.
    Raises :class:`~wormhole.errors.ConfigError`.
    """
    if isinstance(target, Config):
        return _from_config(target, None, session_timeout)
    if isinstance(target, Path) or target.endswith((".toml", ".json")):
        return _from_config(load(target), Path(target), session_timeout)
    try:
        settings = CoordinatorConfig(zookeeper=target)
    except ValidationError:
        settings = CoordinatorConfig()
    if not settings.zookeeper:
        raise ConfigError(
            f'coordinator = "{without_password(target)}" is neither a configuration file nor a ZooKeeper',
            hint='write the path of a .toml file, or "host:port,host:port/root"',
        )
    return _zookeeper(settings, session_timeout)


async def publish_config(config: Config, coordinator: Coordinator | None = None, *, who: str = "") -> None:
    """Write the datasets and applications of ``config`` to where its coordinator, or the given started one, keeps them.

    Of sources only the names. What is stored alike is not written again, and what ``config`` lacks stays. Raises :class:`~wormhole.errors.ConfigError` for the
    static form, which reads its file itself, and when somebody else changes the configuration meanwhile, and
    :class:`~wormhole.errors.CoordinationLost`; repeating it is safe.
    """
    if coordinator is None:
        own = connect(config)
        await own.start()
        try:
            await publish_config(config, own, who=who)
        finally:
            await own.stop()
        return
    if isinstance(coordinator, StaticCoordinator):
        raise nowhere_to_publish()
    changes = differences(await coordinator.configuration(), config)
    if not changes.empty:
        entry = HistoryEntry(
            time.time(), who or made_by(), "config apply", changes.target, changes.before, changes.after
        )
        await coordinator.publish(changes.change, entry)


def _from_config(config: Config, file: Path | None, session_timeout: float | None) -> Coordinator:
    match config.form:
        case CoordinatorForm.ZOOKEEPER:
            return _zookeeper(config.coordinator, session_timeout)
        case CoordinatorForm.STATIC:
            return StaticCoordinator(config)
        case CoordinatorForm.EMBEDDED:
            if file is None:
                raise ConfigError(
                    "[coordinator] names no ZooKeeper and no application lists its subscribers",
                    hint='add zookeeper = "host:port/root" to [coordinator], or list addresses in [applications.NAME.subscribers]',
                )
            found = embedded_coordinator(file)
            return _zookeeper(config.coordinator.model_copy(update={"zookeeper": found.zookeeper}), session_timeout)


def _zookeeper(settings: CoordinatorConfig, session_timeout: float | None) -> ZooKeeperCoordinator:
    if session_timeout is not None:
        settings = settings.model_copy(update={"session_timeout": session_timeout})
    return ZooKeeperCoordinator(settings)
