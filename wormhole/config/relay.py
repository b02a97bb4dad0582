"""Decides whether a log has a relay, as this host is configured. Pure.

The decision needs more than one table of the configuration: it depends on how many publishers may serve the log.
A relay with the mode ``hold`` may have the only record of a part of the log, so one host has to publish that log.
"""

from __future__ import annotations

from typing import Literal

from wormhole.config.candidates import has_several
from wormhole.config.datastores import datastore, is_one_datastore, schemes
from wormhole.config.model import Config, DatasetConfig, LogConfig, SourceConfig, check_needs_hold
from wormhole.config.processes import CoordinatorForm
from wormhole.config.report import ConfigReport

__all__ = ["RelayMode", "check_relays", "mode_of", "skips_no_less", "what_is_recorded"]

RelayMode = Literal["off", "cache", "hold"]


def mode_of(config: Config, dataset: DatasetConfig, copy: str, name: str, place: SourceConfig) -> RelayMode:
    """The mode of the relay.

    It is the one in ``place``, the source of the log ``name``. Without it, the mode is ``hold`` for a datastore that
    holds its log, if one host publishes the log, and otherwise ``off``. Raises ``ValueError`` for ``hold``, or a
    setting of it, if several publishers may serve the log.
    """
    if place.relay != "hold" and (place.relay is not None or not datastore(place.kind).holds_log):
        return place.relay or "off"
    # A ZooKeeper for this user alone is that of `wormholectl up`, on this machine.
    zookeeper = config.form is CoordinatorForm.ZOOKEEPER and not config.coordinator.same_user
    log = dataset.copies[copy].logs[name]
    several = has_several(dataset, copy, name)
    if not several and (log.candidates or not zookeeper):
        return "hold"
    way_out = "name it as `host` in the log's table"
    default = "by default it holds where the log's table names its `host`"
    if dataset.failover_of(copy) is not None:
        way_out, default = f"take {copy} out of failover.copies", "with failover it does not hold"
    elif several:
        way_out, default = "name it as `host` in place of `hosts`", "with `hosts` it does not hold"
    if place.relay == "hold":
        raise ValueError(
            'relay = "hold" needs one host that publishes the log, for no other could deliver what only its relay '
            f'holds: {way_out}, or use relay = "cache"'
        )
    try:
        check_needs_hold(place)
    except ValueError as error:
        raise ValueError(f"{error}, and {default}") from None
    return "off"


def check_relays(config: Config, report: ConfigReport) -> None:
    """Check the relays of the logs whose sources this file lists."""
    for dataset, settings in config.datasets.items():
        for copy, name, log in settings.each_log():
            place = log.inline or (config.sources or {}).get(log.source)
            if place is None:
                continue
            try:
                mode_of(config, settings, copy, name, place)
            except ValueError as error:
                report.add(("datasets", dataset, "copies", copy, "logs", name), str(error))


def what_is_recorded(dataset: DatasetConfig, log: LogConfig) -> tuple[str, str, str]:
    """The parts of a configuration that determine which updates are made of a log, as text.

    They are its kind (the same for all schemes of one datastore), the sharding, and the tables that it leaves out or
    extends.
    """
    kind = min((scheme for scheme in schemes() if is_one_datastore(scheme, log.kind)), default=log.kind)
    by = dataset.shard_by
    tables = (("skip_tables", log.skip_tables), ("history_tables", log.history_tables))
    text = "; ".join(f"{name} = {', '.join(sorted(names))}" for name, names in tables if names)
    return kind, f"{by.by} = {by.count}" if by.count else by.by, text


def skips_no_less(recorded: str, now: str) -> bool:
    """Whether records that were made with the tables of ``recorded`` may be read with those of ``now``.

    Both are results of :func:`what_is_recorded`. Records may be read if no table that is wanted now was left out then.
    """
    before, after = _tables(recorded), _tables(now)
    skipped = before.pop("skip_tables", frozenset())
    return skipped <= after.pop("skip_tables", frozenset()) and before == after


def _tables(text: str) -> dict[str, frozenset[str]]:
    parts = (part.partition(" = ") for part in text.split("; ") if part)
    return {name: frozenset(names.split(", ")) for name, _, names in parts}
