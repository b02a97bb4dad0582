"""Decides which archive a command or a program may use.

A process that can write to ZooKeeper must not choose a folder or an address for the readers of ZooKeeper. So a value
from ZooKeeper is used only if a file or an option of the operator names it too.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wormhole.admin.discovery import configured, with_coordinator
from wormhole.config import Config, DatasetConfig
from wormhole.formats import FormatSpec
from wormhole.host.where import Where
from wormhole.model.errors import UsageError

__all__ = ["ArchivedLog", "archived", "archived_dataset", "check_archive", "check_formats"]


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """``name``: the name of the dataset.

    ``stored``: whether its settings come from ZooKeeper, where other processes may write, instead of a file.
    """

    config: Config
    name: str
    stored: bool


def archived(coordinator: str, dataset: str, archives: Sequence[str]) -> ArchivedLog:
    """The configuration of ``dataset``, or of the only dataset with an archive, from ``coordinator``. Blocks.

    ``coordinator``: a file, or ZooKeeper. ``archives``: see :func:`check_archive`. Raises
    :class:`~wormhole.model.errors.WormholeError`.
    """
    where = Where(coordinator=coordinator)
    found = configured(where)
    if found is not None:
        return ArchivedLog(found, archived_dataset(found, dataset), stored=False)
    stored = with_coordinator(where, lambda started: started.configuration())
    config = Config(version=1, datasets=stored.datasets, applications=stored.applications)
    name = archived_dataset(config, dataset)
    if name in config.datasets:
        check_archive(config.datasets[name], archives)
    return ArchivedLog(config, name, stored=True)


def check_archive(dataset: DatasetConfig, archives: Sequence[str]) -> None:
    """Raise :class:`~wormhole.model.errors.UsageError` if ZooKeeper names an archive that is not among ``archives``.

    ``dataset``: its configuration in ZooKeeper. ``archives``: folders and URLs. URLs are compared as a whole, because
    the part after a ``?`` may name another server.
    """
    if dataset.archive is None:
        return
    to = dataset.archive.to
    if to.rstrip("/") not in {_place(one) for one in archives}:
        raise UsageError(
            f"the archive of dataset {dataset.name} is {to}: only ZooKeeper records that, and others may write there",
            hint=f"if it is right, add --archive {shlex.quote(to)} (WORMHOLE_ARCHIVE), or give -c FILE, a "
            "configuration "
            f"with [datasets.{dataset.name}.archive]",
            code="untrusted-setting",
        )


def check_formats(dataset: str, specs: Iterable[FormatSpec | None]) -> None:
    """Raise :class:`~wormhole.model.errors.UsageError` if one of ``specs``, from ZooKeeper, names a descriptor set."""
    for spec in specs:
        if spec is not None and spec.descriptor_set is not None:
            raise UsageError(
                f"the values of dataset {dataset} are described by the descriptor set {spec.descriptor_set}: "
                "only ZooKeeper records that, and others may write there",
                hint=f"give -c FILE, a configuration with [datasets.{dataset}] and its value_format",
                code="untrusted-setting",
            )


def _place(archive: str) -> str:
    return (archive if "://" in archive else os.path.abspath(archive)).rstrip("/")


def archived_dataset(config: Config, dataset: str) -> str:
    """``dataset``; if it is empty, the only dataset that has an archive.

    Raises :class:`~wormhole.model.errors.UsageError` unless exactly one dataset has an archive.
    """
    having = sorted(name for name, one in config.datasets.items() if one.archive is not None)
    if dataset or len(having) == 1:
        return dataset or having[0]
    raise UsageError(
        f"{len(having)} datasets have an archive" if having else "no dataset has an archive",
        hint=f"name one: {', '.join(having)}"
        if having
        else (
            'add [datasets.NAME.archive] with to = "/a/folder/of/its/own", and [applications.archive]; see '
            "docs/archive.md"
        ),
    )
