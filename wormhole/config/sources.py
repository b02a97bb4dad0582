"""Determines which log a host reads: a dataset can only choose among what the host's own file allows. Pure.

A dataset in ZooKeeper names a source. The file of the host defines it: address, password file, folders. A source in a
log's own table of a file is listed by this table, under the name ``DATASET/COPY/LOG``. A host whose file lists nothing
is one of an earlier release: until ``wormholectl hosts adopt`` wrote the list, it accepts a whole source from
ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from wormhole.config.candidates import has_several, refusal_of, refusal_on_disk
from wormhole.config.datastores import is_one_datastore
from wormhole.config.load import find_log
from wormhole.config.model import Config, CopyConfig, DatasetConfig, LogConfig, SourceConfig, named_logs
from wormhole.config.relay import RelayMode, mode_of
from wormhole.formats.spec import FormatSpec
from wormhole.model.errors import ConfigError

__all__ = [
    "bound",
    "check_candidates",
    "check_formats",
    "listed",
    "published",
    "relay_of",
    "source_of",
    "unlisted",
    "with_sources",
]


def listed(config: Config) -> dict[str, SourceConfig] | None:
    """The sources that the host with this file allows, by name; ``None``: its file lists no sources."""
    inline = {name: log.inline for name, log in named_logs(config.datasets) if log.inline is not None}
    if config.sources is None and not inline:
        return None
    return {**inline, **(config.sources or {})}


def bound(config: Config, datasets: Mapping[str, DatasetConfig]) -> Config:
    """``config`` with ``datasets``, which others may have written, restricted to the sources that ``config`` allows."""
    sources = listed(config)
    if sources is None:
        return config.model_copy(update={"datasets": datasets})
    sets = {*(config.publisher.descriptor_sets or ()), *_descriptor_sets(config.datasets.values())}
    publisher = config.publisher.model_copy(update={"descriptor_sets": tuple(sorted(sets))})
    return config.model_copy(
        update={"datasets": published(datasets), "sources": sources, "publisher": publisher},
    )


def published(datasets: Mapping[str, DatasetConfig]) -> dict[str, DatasetConfig]:
    """``datasets`` as they are stored for others: with names of sources only."""

    def named(name: str, log: LogConfig) -> LogConfig:
        if log.inline is None:
            return log
        stored = {"host", "hosts", "server_ids", "skip_tables", "history_tables"}
        kept = log.model_dump(include=stored, exclude_defaults=True)
        return LogConfig.model_validate({**kept, "source": name, "kind": log.kind})

    return {name: _changed(dataset, named) for name, dataset in datasets.items()}


def source_of(config: Config, dataset: str, copy: str, log: str) -> SourceConfig:
    """The source that the publisher of this log reads.

    Raises :class:`~wormhole.model.errors.ConfigError` for a log that is not configured, and for a source that this host
    does not list.
    """
    settings = find_log(config, dataset, copy, log)
    if settings.inline is not None:
        return settings.inline
    found = (config.sources or {}).get(settings.source)
    at = f"datasets.{dataset}.copies.{copy}.logs.{log}"
    if found is None:
        raise ConfigError(
            f"{at} names the source {settings.source!r}, which this host does not list",
            hint=f"if this host may read it, add [sources.{_key(settings.source)}] with its source to the file of "
            "this host's monitor "
            "(`wormholectl hosts adopt` writes what ZooKeeper still holds), and send the monitor SIGHUP",
        )
    if not is_one_datastore(found.kind, settings.kind):
        raise ConfigError(
            f"{at} names the source {settings.source!r} as {settings.kind}, and this host lists it as {found.kind}",
            hint="correct `kind` in the dataset, or the list in the file of this host's monitor",
        )
    return found


def relay_of(config: Config, dataset: str, copy: str, log: str) -> RelayMode:
    """The mode of the log's relay on this host.

    Raises :class:`~wormhole.model.errors.ConfigError` as :func:`source_of`, and for a relay that several hosts cannot
    have.
    """
    place = source_of(config, dataset, copy, log)
    try:
        return mode_of(config, config.datasets[dataset], copy, log, place)
    except ValueError as error:
        raise ConfigError(
            f"datasets.{dataset}.copies.{copy}.logs.{log}: {error}", hint="docs/relay.md explains the modes"
        ) from None


def check_candidates(config: Config, dataset: str, copy: str, log: str) -> None:
    """Raise :class:`~wormhole.model.errors.ConfigError` for a log that is not configured. Raise it also for a log that
    several publishers may serve, if this host cannot run one of them.
    """
    settings = find_log(config, dataset, copy, log)
    chosen = config.datasets[dataset]
    refusal = refusal_of(config) or refusal_on_disk(config, settings)
    if has_several(chosen, copy, log) and refusal:
        setting = f"copies.{copy}.logs.{log}.hosts" if chosen.failover_of(copy) is None else "failover"
        raise ConfigError(f"datasets.{dataset}.{setting} {refusal.text}", hint=refusal.hint, code=refusal.code)


def check_formats(config: Config, dataset: str) -> None:
    """Raise :class:`~wormhole.model.errors.ConfigError` for a descriptor set that this host does not list."""
    allowed = config.publisher.descriptor_sets
    if allowed is None:
        return
    for path in sorted(_descriptor_sets([config.datasets[dataset]])):
        if path not in allowed:
            raise ConfigError(
                f"datasets.{dataset}: value_format names the descriptor set {path}, which this host does not list",
                hint="add it to descriptor_sets under [publisher] in the file of this host's monitor, and send that "
                "SIGHUP",
            )


def with_sources(config: Config, name: str) -> dict[str, SourceConfig] | None:
    """The source of this name, if ``config`` lists it; ``None`` if ``config`` lists no sources at all."""
    if config.sources is None:
        return None
    return {name: config.sources[name]} if name in config.sources else {}


def unlisted(config: Config, datasets: Mapping[str, DatasetConfig]) -> dict[str, SourceConfig]:
    """Sources that ``datasets`` hold themselves, as an earlier release stored them, and that ``config`` does not
    list."""
    known = listed(config) or {}
    return {name: log.inline for name, log in named_logs(datasets) if log.inline is not None and name not in known}


def _changed(dataset: DatasetConfig, change: Callable[[str, LogConfig], LogConfig]) -> DatasetConfig:
    copies = {
        copy: CopyConfig(logs={log: change(f"{dataset.name}/{copy}/{log}", found) for log, found in one.logs.items()})
        for copy, one in dataset.copies.items()
    }
    return dataset.model_copy(update={"copies": copies})


def _descriptor_sets(datasets: Iterable[DatasetConfig]) -> set[Path]:
    specs: list[FormatSpec] = []
    for dataset in datasets:
        specs += [*dataset.values.values(), *([dataset.value_format] if dataset.value_format else [])]
    return {spec.descriptor_set for spec in specs if spec.descriptor_set is not None}


def _key(name: str) -> str:
    return f'"{name}"' if set(name) & set("/.") else name
