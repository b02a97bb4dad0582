"""Opens the coordinator that a configuration, a file or an address names, and stores configuration there."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from wormhole.config import Config, CoordinatorConfig, CoordinatorForm, load
from wormhole.config.passwords import without_password
from wormhole.coordination.credentials import VARIABLE
from wormhole.coordination.current_user import current_user
from wormhole.coordination.differences import differences
from wormhole.coordination.port import Coordinator, HistoryEntry
from wormhole.coordination.rules import nowhere_to_publish
from wormhole.coordination.static import StaticCoordinator
from wormhole.coordination.up_data_folder import at_embedded, embedded_coordinator
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import ConfigError, WormholeError

__all__ = ["connect", "publish_config", "warn", "zookeeper_at"]


def connect(target: str | Path | Config, *, session_timeout: float | None = None) -> Coordinator:
    """The coordinator that ``target`` names, not started yet.

    ``target``: a configuration; the path of a configuration file (a text that ends in ``.toml`` or ``.json``, or a
    :class:`~pathlib.Path`; read at once); or ZooKeeper as ``"zk1:2181,zk2:2181/root"``. If a file names no ZooKeeper,
    the one that ``wormholectl up`` embeds for it is used. ``session_timeout`` (seconds) replaces the configured one.
    Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    config = _config_at(target)
    if config is not None and config.form is CoordinatorForm.STATIC:
        return StaticCoordinator(config)
    settings = _settings(target, config)
    if session_timeout is not None:
        settings = settings.model_copy(update={"session_timeout": session_timeout})
    return ZooKeeperCoordinator(settings)


def zookeeper_at(target: str | Path | Config) -> CoordinatorConfig:
    """The address of the ZooKeeper that ``target`` of :func:`connect` names, and the credentials for it.

    Credentials that the environment names (:data:`~wormhole.coordination.credentials.VARIABLE`) replace those of a
    file, because the file may be the host's, and another user may run the command. An embedded ZooKeeper has its own
    credentials. A configuration that was read already is used unchanged. Raises
    :class:`~wormhole.model.errors.ConfigError`, also when ``target`` names no ZooKeeper.
    """
    return _settings(target, _config_at(target))


async def warn(coordinator: Coordinator, log: logging.Logger) -> None:
    """Log the safety warnings of a started coordinator. Daemons call it at their start."""
    with contextlib.suppress(WormholeError):  # the next call that needs an answer reports what is wrong
        for warning in await coordinator.warnings():
            log.warning("%s", warning)


async def publish_config(
    config: Config, coordinator: Coordinator | None = None, *, who: str = "", now: Callable[[], float] = time.time
) -> None:
    """Write the datasets and applications of ``config`` to the store of its coordinator, or of the given started one.

    Only the names of sources are written. Equal records are not written again, and records that ``config`` lacks stay.
    Raises :class:`~wormhole.model.errors.ConfigError` for the static form, which reads its file itself, and when
    another client changes the configuration meanwhile. Raises :class:`~wormhole.model.errors.CoordinationLost`;
    repeating the call is safe.
    """
    if coordinator is None:
        own = connect(config)
        await own.start()
        try:
            await publish_config(config, own, who=who, now=now)
        finally:
            await own.stop()
        return
    if isinstance(coordinator, StaticCoordinator):
        raise nowhere_to_publish()
    changes = differences(await coordinator.configuration(), config)
    if not changes.empty:
        entry = HistoryEntry(
            now(), who or current_user(), "config apply", changes.target, changes.before, changes.after
        )
        await coordinator.publish(changes.change, entry)


def _settings(target: str | Path | Config, config: Config | None) -> CoordinatorConfig:
    if config is None:
        return _of_environment(_address(str(target)))
    match config.form:
        case CoordinatorForm.STATIC:
            raise ConfigError("the static form has no ZooKeeper", hint="name one in [coordinator]")
        case CoordinatorForm.EMBEDDED if isinstance(target, Config):
            raise ConfigError(
                "[coordinator] names no ZooKeeper and no application lists its subscribers",
                hint='add zookeeper = "host:port/root" to [coordinator], or list addresses in '
                "[applications.NAME.subscribers]",
            )
        case CoordinatorForm.EMBEDDED:
            return at_embedded(config.coordinator, embedded_coordinator(Path(str(target))))
        case CoordinatorForm.ZOOKEEPER:
            return config.coordinator if isinstance(target, Config) else _of_environment(config.coordinator)


def _config_at(target: str | Path | Config) -> Config | None:
    """The configuration in the file ``target``; ``None`` if ``target`` is no path of a configuration file."""
    if isinstance(target, Config):
        return target
    return load(target) if isinstance(target, Path) or target.endswith((".toml", ".json")) else None


def _address(text: str) -> CoordinatorConfig:
    try:
        settings = CoordinatorConfig(zookeeper=text)
    except ValidationError:
        settings = CoordinatorConfig()
    if not settings.zookeeper:
        raise ConfigError(
            f'coordinator = "{without_password(text)}" is neither a configuration file nor a ZooKeeper',
            hint='write the path of a .toml file, or "host:port,host:port/root"',
        )
    return settings


def _of_environment(settings: CoordinatorConfig) -> CoordinatorConfig:
    named = os.environ.get(VARIABLE)
    if not named or settings.same_user:
        return settings
    return settings.model_copy(update={"auth_file": Path(named)})
