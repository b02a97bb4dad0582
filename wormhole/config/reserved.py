"""Finds logs that would need the same objects in a datastore: each publisher needs its own."""

from __future__ import annotations

from wormhole.config.datastores import datastore
from wormhole.config.model import Config, DatasetConfig, LogConfig, SourceConfig
from wormhole.config.report import ConfigReport
from wormhole.model.errors import UsageError

__all__ = ["check_reserved"]


def check_reserved(config: Config, report: ConfigReport) -> None:
    """Report the second of two logs that need the same objects, if the file has their addresses. On another host the
    same address may lead elsewhere.
    """
    owners: dict[tuple[str, str], str] = {}
    for dataset in config.datasets.values():
        for copy, name, log in dataset.each_log():
            words = _reserved(config, log, name)
            path = f"{dataset.name}/{copy}/{name}"
            hosts = (log.candidates or ("",)) if words else ()
            has_it = [owners.setdefault((host, words), path) for host in hosts]
            owner = next((one for one in has_it if one != path), "")
            if owner:
                at = ("datasets", dataset.name, "copies", copy, "logs", name)
                report.add(at, f"needs {words}, which {owner} has: {_way_out(dataset, copy, owner)}")


def _way_out(dataset: DatasetConfig, copy: str, owner: str) -> str:
    owners_dataset, owners_copy, _ = owner.split("/")
    if owners_dataset == dataset.name and dataset.failover_of(owners_copy) and dataset.failover_of(copy):
        return "copies that serve for each other are servers of their own; `hosts` lists the hosts that read one server"
    return "updates would be lost; give one of the logs another name"


def _reserved(config: Config, log: LogConfig, name: str) -> str:
    source: SourceConfig | None = log.inline or (config.sources or {}).get(log.source)
    if source is None:
        return ""  # another host lists the source
    try:
        return datastore(source.kind).reserved(source.source, name)
    except UsageError:
        return ""  # the datastore is not installed here
