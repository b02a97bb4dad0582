"""The configuration of one publisher: the part of a whole configuration that it reads, and the part whose change needs
a restart.

Monitor and publisher both compute :func:`digest`. A running publisher with the same digest needs no restart.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

from wormhole import __version__
from wormhole.config import (
    CaravanCaps,
    Config,
    CoordinatorForm,
    CopyConfig,
    DatasetConfig,
    LogConfig,
    MonitorConfig,
    config_to_json,
    find_log,
    parse_json,
    to_json_file,
)
from wormhole.config.sources import with_sources

__all__ = ["digest", "of_one_log", "read_running", "write_running"]

_RUNNING: Final = "running.json"


def of_one_log(config: Config, dataset: str, copy: str, log: str) -> Config:
    """``config`` with this log and what its publisher needs, and no more: a change of another log does not change it.

    Applications are left out if ZooKeeper holds them. The archive is always left out: no publisher reads or writes it.
    Of other copies only the hosts are kept, and of the monitor only the name of the host: they determine which other
    publishers may serve the log, and for which applications. Raises :class:`~wormhole.model.errors.ConfigError` for an
    unknown log.
    """
    settings, whole = find_log(config, dataset, copy, log), config.datasets[dataset]
    static = config.form is CoordinatorForm.STATIC
    copies = {copy: CopyConfig(logs={log: settings})} | ({} if static else _others(whole, copy, log))
    narrower = {"copies": copies, "archive": None, "failover": None if static else whole.failover_of(copy)}
    changes: dict[str, Any] = {
        "monitor": MonitorConfig(host="" if static else config.monitor.host),
        "sources": with_sources(config, settings.source),
        "datasets": {dataset: whole.model_copy(update=narrower)},
        "applications": {},
        "sinks": {},
    }
    if static:
        # The form is set explicitly, because the application that determined it may belong to another dataset.
        changes["coordinator"] = config.coordinator.model_copy(update={"static": True})
        changes["applications"] = {
            name: application
            for name, application in config.applications.items()
            if application.dataset == dataset and whole.serves(copy, application.from_copy)
        }
    return config.model_copy(update=changes)


def _others(dataset: DatasetConfig, copy: str, log: str) -> dict[str, CopyConfig]:
    """The other copies with the hosts of their log of this name, or of all their logs if none has it."""

    def hosts_only(other: str, name: str, settings: LogConfig) -> LogConfig:
        hosts = settings.model_dump(include={"host", "hosts"}, exclude_defaults=True)
        return LogConfig.model_validate({"source": f"{dataset.name}/{other}/{name}", "kind": settings.kind, **hosts})

    return {
        other: CopyConfig(
            logs={
                name: hosts_only(other, name, settings)
                for name, settings in one.logs.items()
                if name == log or log not in one.logs
            }
        )
        for other, one in dataset.copies.items()
        if other != copy
    }


def digest(config: Config, dataset: str, copy: str, log: str) -> str:
    """A hexadecimal SHA-256 of what a publisher of this log runs. It differs when only a restart can apply a change.

    With ZooKeeper, applications and the caps on caravans are followed live and not included. Copies that never serve
    this log are not included either. The release is included, so that a publisher of another release is replaced.
    Raises as :func:`of_one_log`.
    """
    narrow = of_one_log(config, dataset, copy, log)
    if narrow.form is CoordinatorForm.ZOOKEEPER:
        chosen = narrow.datasets[dataset]
        group = {name: one for name, one in chosen.copies.items() if chosen.group(name) == chosen.group(copy)}
        counted = chosen.model_copy(update={"caravans": CaravanCaps(), "copies": group})
        narrow = narrow.model_copy(update={"datasets": {dataset: counted}, "monitor": MonitorConfig()})
    return _hashed(__version__, config_to_json(narrow))


def write_running(config: Config, folder: Path, dataset: str, copy: str, log: str) -> None:
    """Write the publisher's configuration into its ``folder``, in the static form, in which nothing else stores it.
    Blocks.

    Raises ``OSError``.
    """
    narrow = of_one_log(config, dataset, copy, log)
    if narrow.form is CoordinatorForm.STATIC:
        to_json_file(narrow, folder / _RUNNING)


def read_running(folder: Path, version: str, running: str) -> Config | None:
    """The configuration that the publisher of that release and :func:`digest` wrote into ``folder``; ``None`` if it
    wrote none.

    Blocks. Raises :class:`~wormhole.model.errors.ConfigError` for content that this release does not know.
    """
    try:
        text = (folder / _RUNNING).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return parse_json(text, str(folder / _RUNNING)) if _hashed(version, text) == running else None


def _hashed(version: str, text: str) -> str:
    return hashlib.sha256(f"{version}\n{text}".encode()).hexdigest()
