"""Finds the log at a URL in a configuration file: its name, its applications, and the existing rows that they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from wormhole.admin.discovery import configured
from wormhole.config import EXISTING, Config
from wormhole.config.passwords import without_password
from wormhole.host.where import Where
from wormhole.model.errors import UsageError
from wormhole.ports.datastore import Datastore

__all__ = ["ConfiguredLog", "chosen_log"]


class ConfiguredLog(NamedTuple):
    """A log of a configuration: its name, its URL there, the applications that receive it, and patterns of the tables
    whose existing rows they read. ``path``: ``DATASET/COPY/LOG``. ``binlog_folder``: the setting of its source on this
    host.
    """

    name: str = ""
    source: str = ""
    applications: Sequence[str] = ()
    wanted_rows: Sequence[str] = ()
    path: str = ""
    binlog_folder: Path | None = None


def chosen_log(found: Datastore, url: str, where: Where, chosen: str = "") -> ConfiguredLog:
    """The log at ``url`` in the configuration file: the ``chosen`` log (``LOG`` or ``DATASET/COPY/LOG``), or the only
    log. Without a file, or if the file has no log at ``url``, the result only has the chosen name.

    Logs that the datastore does not distinguish count as one. Raises :class:`~wormhole.model.errors.ConfigError`, and
    :class:`~wormhole.model.errors.UsageError` if the file has several logs there, or none with the chosen name.
    """
    config = configured(where)
    known = {} if config is None else dict(_logs_at(url, config))
    if not known:
        return ConfiguredLog(chosen.rpartition("/")[2])
    wanted = {path: log for path, log in known.items() if not chosen or chosen in (path, log.name)}
    at = f"{where.coordinator} has {{}} at {without_password(url)}"
    if not wanted:
        raise UsageError(at.format(f"no log {chosen}"), hint=f"choose one with --log: {', '.join(known)}")
    if len({found.url_of_log(url, log.name, log.source) for log in wanted.values()}) > 1:
        raise UsageError(at.format("several logs"), hint=f"choose one with --log: {', '.join(wanted)}")
    first, *others = wanted.values()
    applications = [name for log in (first, *others) for name in log.applications]
    rows = [pattern for log in (first, *others) for pattern in log.wanted_rows]
    return first._replace(applications=list(dict.fromkeys(applications)), wanted_rows=list(dict.fromkeys(rows)))


def _logs_at(url: str, config: Config) -> Iterator[tuple[str, ConfiguredLog]]:
    for dataset_name, dataset in config.datasets.items():
        receiving = {name: one for name, one in config.applications.items() if one.dataset == dataset_name}
        from_existing = [one for one in receiving.values() if one.start == EXISTING]
        rows = list(dict.fromkeys(pattern for one in from_existing for pattern in one.tables or ("*",)))
        for copy_name, copy in dataset.copies.items():
            for name, log in copy.logs.items():
                place = log.inline or (config.sources or {}).get(log.source)
                source = log.source if place is None else place.source
                if _is_at(url, source):
                    path = f"{dataset_name}/{copy_name}/{name}"
                    folder = None if place is None else place.binlog_folder
                    yield path, ConfiguredLog(name, source, list(receiving), rows, path, folder)


def _is_at(url: str, source: str) -> bool:
    asked, known = urlsplit(url), urlsplit(source)
    ports = {asked.port, known.port} - {None}
    return (asked.hostname, asked.path.rstrip("/")) == (known.hostname, known.path.rstrip("/")) and len(ports) < 2
