"""The configuration of one publisher: what of a whole configuration it reads, and what of that takes a restart to
change.

Monitor and publisher both compute :func:`digest`; a running publisher with the same one need not be restarted.
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
    """``config`` with this log and what its publisher needs, no more: a change of another log is no change of this one.

    Applications are left out where ZooKeeper holds them, and the archive always: no publisher reads or writes it.
    Raises :class:`~wormhole.model.errors.ConfigError` for an unknown log.
    """
    settings = find_log(config, dataset, copy, log)
    narrower = {"copies": {copy: CopyConfig(logs={log: settings})}, "archive": None}
    chosen = config.datasets[dataset].model_copy(update=narrower)
    changes: dict[str, Any] = {
        "monitor": MonitorConfig(),
        "sources": with_sources(config, settings.source),
        "datasets": {dataset: chosen},
        "applications": {},
    }
    if config.form is CoordinatorForm.STATIC:
        # Explicitly: the application that showed the form may be one of another dataset.
        changes["coordinator"] = config.coordinator.model_copy(update={"static": True})
        changes["applications"] = {
            name: application
            for name, application in config.applications.items()
            if application.dataset == dataset and application.from_copy in ("", copy)
        }
    return config.model_copy(update=changes)


def digest(config: Config, dataset: str, copy: str, log: str) -> str:
    """What a publisher of this log runs, as a hexadecimal SHA-256: differs when only a restart can bring the change.

    With ZooKeeper, applications and the caps on caravans are followed live and do not count. The release does: a
    publisher of another one is replaced. Raises as :func:`of_one_log`.
    """
    narrow = of_one_log(config, dataset, copy, log)
    if narrow.form is CoordinatorForm.ZOOKEEPER:
        uncapped = narrow.datasets[dataset].model_copy(update={"caravans": CaravanCaps()})
        narrow = narrow.model_copy(update={"datasets": {dataset: uncapped}})
    return _hashed(__version__, config_to_json(narrow))


def write_running(config: Config, folder: Path, dataset: str, copy: str, log: str) -> None:
    """Write what a publisher runs into its ``folder``, in the static form, where nothing else holds it. Blocks.

    Raises ``OSError``.
    """
    narrow = of_one_log(config, dataset, copy, log)
    if narrow.form is CoordinatorForm.STATIC:
        to_json_file(narrow, folder / _RUNNING)


def read_running(folder: Path, version: str, running: str) -> Config | None:
    """What the publisher of that release and :func:`digest` wrote into ``folder``; ``None`` where it wrote nothing.

    Blocks. Raises :class:`~wormhole.model.errors.ConfigError` for what this release does not know.
    """
    try:
        text = (folder / _RUNNING).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return parse_json(text, str(folder / _RUNNING)) if _hashed(version, text) == running else None


def _hashed(version: str, text: str) -> str:
    return hashlib.sha256(f"{version}\n{text}".encode()).hexdigest()
