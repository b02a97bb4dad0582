"""Opens the tables of a dataset's logs for the tasks of a baseline."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wormhole.coordination.port import LogGroup
from wormhole.model.errors import ConfigError, UsageError
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.table_source import TableSource

if TYPE_CHECKING:
    from spark_replay.archive.choice import ArchivedLog
    from spark_replay.baseline.scan import TableLog
    from wormhole.config import Config
    from wormhole.ports.source_state import SourceState

__all__ = ["OpenTables", "table_logs"]


@dataclass(frozen=True, slots=True)
class OpenTables:
    """Opens the tables of one log, here or where a task of Spark runs.

    ``password``: the content of the password file, for hosts that do not have the file; empty: the options name the
    file. The text form of this object contains neither the password nor the URL, which may contain a password too.
    """

    url: str = field(repr=False)
    options: SourceOptions
    password: bytes = field(default=b"", repr=False)

    def __call__(self, folder: Path) -> TableSource:
        """Open the tables. ``folder``: an empty folder of the caller. Raises
        :class:`~wormhole.model.errors.UsageError`."""
        from publisher.sources import open_tables

        options = replace(self.options, rows_dir=folder)
        if self.password:
            options = replace(options, login=Login(_memory_file(self.password)))
        return open_tables(self.url, options)


@functools.cache
def _memory_file(data: bytes) -> Path:
    """A file in memory with the data. The file ends with this process."""
    descriptor = os.memfd_create("password")
    os.write(descriptor, data)
    return Path(f"/proc/self/fd/{descriptor}")


def table_logs(chosen: ArchivedLog, copy: str, *, local: bool) -> Sequence[TableLog]:
    """The logs of the copy that is archived. ``local``: all tasks run on this host.

    Raises :class:`~wormhole.model.errors.UsageError` if only ZooKeeper names the logs,
    :class:`~wormhole.model.errors.ConfigError`, and, if datamarkers are in ZooKeeper, what reading from it raises.
    """
    from publisher.sources.configured import configured_source
    from spark_replay.baseline.scan import TableLog

    config, dataset = chosen.config, chosen.name
    if chosen.stored:
        raise UsageError(
            f"which databases dataset {dataset} has, and how they are reached, only ZooKeeper records, and others may "
            "write there",
            hint="give -c FILE, the configuration of the publisher's host",
            code="untrusted-setting",
        )
    if config.datasets[dataset].failover is not None:
        raise UsageError(
            f"dataset {dataset} has failover: the places of its archive are of whichever copy served, and rows that "
            "are read beside a publisher cannot be compared with them",
            hint="let publishers read the rows: a backfill of the archive's application (docs/existing-rows.md)",
        )
    found = []
    for log in sorted(config.datasets[dataset].copies[copy].logs):
        place, options = configured_source(config, dataset, copy, log)
        password = b""
        if place.password_file is not None and not local:
            try:
                password = place.password_file.read_bytes()
            except OSError as error:
                raise ConfigError(
                    f"the password file {place.password_file} cannot be read: {error.strerror}",
                    hint="run the command as the publisher's user, on its host",
                ) from error
        if config.publisher.markers == "zookeeper":
            options = replace(options, state=_known_servers(config, dataset, copy, log))
        found.append(TableLog(log, OpenTables(place.source, options, password)))
    return found


def _known_servers(config: Config, dataset: str, copy: str, log: str) -> SourceState:
    """The servers that the log's publisher knows. Rows of another server are refused."""
    from publisher.stores.markers import ZooKeeperMarkerStore, open_store
    from publisher.stores.source_state import CopiedState
    from wormhole.ports.source_state import HISTORIES

    with closing(open_store(config, dataset, copy, log)) as store:
        assert isinstance(store, ZooKeeperMarkerStore)
        group = LogGroup(dataset, config.datasets[dataset].group(copy), log)
        return CopiedState({HISTORIES: store.source_state(group).read(HISTORIES)})
