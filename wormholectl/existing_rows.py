"""What a configuration file says about the log at a URL: its name, and which existing rows applications begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from wormhole.admin.discovery import configured
from wormhole.config import EXISTING, Config, LogConfig
from wormhole.host.where import Where

__all__ = ["ConfiguredLog", "configured_log", "wanted_rows"]


def wanted_rows(url: str, where: Where) -> list[str]:
    """Patterns of the tables of which applications begin with the existing rows, in the log at ``url``; empty without
    a configuration file. Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    config = configured(where)
    if config is None:
        return []
    found: dict[str, None] = {}
    for application in config.applications.values():
        dataset = config.datasets[application.dataset]
        logs = [log for copy in dataset.copies.values() for log in copy.logs.values()]
        if application.start == EXISTING and any(_is_at(url, log, config) for log in logs):
            found |= dict.fromkeys(application.tables or ("*",))
    return list(found)


class ConfiguredLog(NamedTuple):
    """A log of a configuration: its name, its URL there, and the applications that receive it."""

    name: str = ""
    source: str = ""
    applications: Sequence[str] = ()


def configured_log(url: str, where: Where) -> ConfiguredLog:
    """The log at ``url`` in the configuration file; an empty one without a file, and without such a log.

    Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    config = configured(where)
    if config is None:
        return ConfiguredLog()
    for dataset_name, dataset in config.datasets.items():
        for copy in dataset.copies.values():
            for name, log in copy.logs.items():
                if _is_at(url, log, config):
                    receive = [app for app, one in config.applications.items() if one.dataset == dataset_name]
                    return ConfiguredLog(name, _source(log, config), receive)
    return ConfiguredLog()


def _source(log: LogConfig, config: Config) -> str:
    named = (config.sources or {}).get(log.source)
    return log.source if named is None else named.source


def _is_at(url: str, log: LogConfig, config: Config) -> bool:
    asked, known = urlsplit(url), urlsplit(_source(log, config))
    ports = {asked.port, known.port} - {None}
    return (asked.hostname, asked.path.rstrip("/")) == (known.hostname, known.path.rstrip("/")) and len(ports) < 2
