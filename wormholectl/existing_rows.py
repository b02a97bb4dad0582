"""What a configuration file says about the log at a URL: its name, and which existing rows applications begin with."""

from __future__ import annotations

from urllib.parse import urlsplit

from wormhole.admin.discovery import configured
from wormhole.config import EXISTING, Config, LogConfig
from wormhole.host.where import Where

__all__ = ["log_name", "wanted_rows"]


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


def log_name(url: str, where: Where) -> str:
    """The name that the configuration file gives to the log at ``url``; empty without a file, and without such a log.

    Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    config = configured(where)
    if config is None:
        return ""
    copies = [copy for dataset in config.datasets.values() for copy in dataset.copies.values()]
    names = (name for copy in copies for name, log in copy.logs.items() if _is_at(url, log, config))
    return next(names, "")


def _is_at(url: str, log: LogConfig, config: Config) -> bool:
    named = (config.sources or {}).get(log.source)
    asked, known = urlsplit(url), urlsplit(log.source if named is None else named.source)
    ports = {asked.port, known.port} - {None}
    return (asked.hostname, asked.path.rstrip("/")) == (known.hostname, known.path.rstrip("/")) and len(ports) < 2
