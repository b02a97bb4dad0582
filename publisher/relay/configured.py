"""Derives the arguments for opening a log's relay from the configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from publisher.relay.files import number_of
from publisher.relay.settings import RelayIdentity, RelaySettings
from wormhole.config import Config, RelayMode, find_log, relay_of, source_of, what_is_recorded
from wormhole.model.units import parse_size

__all__ = ["SLOT_BUDGET", "ConfiguredRelay", "configured_relay"]

SLOT_BUDGET: Final = parse_size("1GiB")
"""The settings of a log without a configured relay."""


class ConfiguredRelay(NamedTuple):
    """The arguments of :class:`~publisher.relay.source.RelayedSource`, except for the inner source."""

    folder: Path
    identity: RelayIdentity
    settings: RelaySettings


def configured_relay(config: Config, dataset: str, copy: str, log: str) -> ConfiguredRelay | None:
    """The log's configured relay, or ``None``. Raises :class:`~wormhole.model.errors.ConfigError`, like
    :func:`~wormhole.config.relay_of`.
    """
    mode = relay_of(config, dataset, copy, log)
    return None if mode == "off" else _relay(config, dataset, copy, log, mode)


def left_relay(config: Config, dataset: str, copy: str, log: str) -> ConfiguredRelay | None:
    """The former relay of a log whose relay was turned off; ``None`` if it has no records.

    It is still read, because the datastore may no longer have the log that the relay holds.
    """
    found = _relay(config, dataset, copy, log, "off")
    try:
        sizes = [path.stat().st_size for path in found.folder.iterdir() if number_of(path.name) is not None]
    except OSError:
        return None
    if not sizes:
        return None
    return found._replace(settings=replace(found.settings, budget=max(found.settings.budget, 2 * sum(sizes))))


def _relay(config: Config, dataset: str, copy: str, log: str, mode: RelayMode) -> ConfiguredRelay:
    place, publishing = source_of(config, dataset, copy, log), config.publisher
    kind, sharding, tables = what_is_recorded(config.datasets[dataset], find_log(config, dataset, copy, log))
    return ConfiguredRelay(
        place.relay_folder or publishing.state_dir / dataset / copy / log / "relay",
        RelayIdentity(f"{dataset}/{copy}/{log}", kind, sharding, publishing.max_update_bytes, tables),
        RelaySettings(
            mode,
            place.relay_budget,
            (place.slot_budget or SLOT_BUDGET) if mode == "hold" else 0,
            place.on_relay_full or "lose",
            place.relay_compression == "zstd",
        ),
    )
