"""``wormholectl archive run``."""

from __future__ import annotations

import os

from wormhole.cli.discovery import Where, configured, with_coordinator
from wormhole.cli.guard import lazily
from wormhole.config import Config
from wormhole.errors import UsageError

__all__ = ["archived_dataset", "archiving_config", "run"]


def archiving_config(coordinator: str) -> Config:
    """The configuration that ``coordinator`` (a file, or ZooKeeper) names; blocks. Raises :class:`~wormhole.errors.WormholeError`."""
    where = Where(coordinator=coordinator)
    found = configured(where)
    if found is not None:
        return found
    stored = with_coordinator(where, lambda started: started.configuration())
    return Config(version=1, datasets=stored.datasets, applications=stored.applications)


def archived_dataset(config: Config, dataset: str) -> str:
    """``dataset``, or the only one that has an archive. Raises :class:`~wormhole.errors.UsageError` when that is not one."""
    having = sorted(name for name, one in config.datasets.items() if one.archive is not None)
    if dataset or len(having) == 1:
        return dataset or having[0]
    raise UsageError(
        f"{len(having)} datasets have an archive" if having else "no dataset has an archive",
        hint=f"name one: {', '.join(having)}"
        if having
        else 'add [datasets.NAME.archive] with to = "/a/folder/of/its/own", and [applications.archive]; see docs/archive.md',
    )


def run(dataset: str, coordinator: str, http: str, accept_loss: bool, log_level: str) -> None:
    """Archive until SIGTERM or Ctrl-C."""
    lazily("wormhole.logs", "archive").configure(log_level)
    if http:
        lazily("aiohttp", "monitor")
    # pyarrow looks when it is imported: with an allocator of its own it keeps what the rest of the process could use.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    archiver = lazily("spark_replay.archive.run", "archive")
    config = archiving_config(coordinator)
    archiver.run(config, archived_dataset(config, dataset), coordinator, http=http, accept_loss=accept_loss)
