"""The arguments with which a log's relay is opened, from its configuration."""

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
"""The settings if nothing is configured."""


class ConfiguredRelay(NamedTuple):
    """The arguments of a relayed source beside the source inside it."""

    folder: Path
    identity: RelayIdentity
    settings: RelaySettings


def configured_relay(config: Config, dataset: str, copy: str, log: str) -> ConfiguredRelay | None:
    """``None``: the log has none. Raises :class:`~wormhole.model.errors.ConfigError`, as
    :func:`~wormhole.config.relay_of`.
    """
    mode = relay_of(config, dataset, copy, log)
    return None if mode == "off" else _relay(config, dataset, copy, log, mode)


def left_relay(config: Config, dataset: str, copy: str, log: str) -> ConfiguredRelay | None:
    """The relay of a log whose relay was turned off; ``None`` if it holds nothing.

    The datastore may no longer have what the relay holds.
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
