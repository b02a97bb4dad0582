"""Derives the arguments for opening a log's source from the configuration."""

from __future__ import annotations

from wormhole.config import Config, SourceConfig, find_log, source_of
from wormhole.ports.datastore import Login, SourceOptions

__all__ = ["configured_source"]


def configured_source(config: Config, dataset: str, copy: str, log: str) -> tuple[SourceConfig, SourceOptions]:
    """The source on this host, and its options. Raises :class:`~wormhole.model.errors.ConfigError` for a log
    that is not configured, and for a source that this host does not list.
    """
    settings, place = find_log(config, dataset, copy, log), source_of(config, dataset, copy, log)
    publishing = config.publisher
    state = publishing.state_dir / dataset / copy / log
    return place, SourceOptions(
        log=log,
        state_dir=place.pin_folder or state / "source",
        sharding=config.datasets[dataset].shard_by,
        max_update_bytes=publishing.max_update_bytes,
        disk_budget=place.pin_budget,
        server_ids=settings.server_ids,
        skip_tables=frozenset(settings.skip_tables),
        history_tables=frozenset(settings.history_tables),
        login=Login(place.password_file),
        binlog_folder=place.binlog_folder,
    )
