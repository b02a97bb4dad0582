"""Stores the configuration and its history in ZooKeeper. One transaction changes both."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kazoo.exceptions import BadVersionError, NoNodeError

from wormhole.config import ApplicationConfig, DatasetConfig, application_from_json, dataset_from_json, to_json
from wormhole.coordination.kazoo_client import failure, refused
from wormhole.coordination.nodes import LARGEST_NODE, Nodes, Watcher
from wormhole.coordination.port import HISTORY_KEPT, ConfigChange, HistoryEntry, StoredConfig
from wormhole.coordination.records import Paths, history_from_json, history_to_json
from wormhole.coordination.rules import changed_meanwhile, shortened
from wormhole.model.errors import ConfigError, CoordinationLost, WormholeError

__all__ = ["MOST_BYTES", "ConfigStore"]

_log = logging.getLogger(__name__)

_Settings = TypeVar("_Settings", ApplicationConfig, DatasetConfig)

MOST_BYTES: Final = 32 << 20
"""Limit of the bytes of all datasets, and of all applications. Thousands with long filters fit."""
_DELETE_IT: Final = "delete it: it is an entry of the history, which nothing else needs"
# Bytes that each operation adds to a transaction, besides its path and its data.
_OVERHEAD: Final = 100


class ConfigStore:
    """``/datasets``, ``/applications``, ``/config`` and ``/history`` of :mod:`wormhole.coordination.records`.

    An empty node is no record. Other processes keep their nodes below an application, so its node stays after its
    configuration was removed.
    """

    def __init__(self, nodes: Nodes, paths: Paths) -> None:
        self._session, self._nodes, self._paths = nodes.session, nodes, paths

    def reader_of_applications(self) -> Callable[[Watcher], Any]:
        """The function that reads every application, for one watch."""
        return self._reader(self._paths.applications, application_from_json)

    def reader_of_datasets(self) -> Callable[[Watcher], Any]:
        """The function that reads every dataset, for one watch."""
        return self._reader(self._paths.datasets, dataset_from_json)

    async def configuration(self) -> StoredConfig:
        """The stored configuration. A node without valid settings is left out and logged, so that a new configuration
        can replace it.
        """
        while True:
            version = await self._nodes.version(self._paths.config)
            applications = await self._all(self._paths.applications, application_from_json, None, {})
            datasets = await self._all(self._paths.datasets, dataset_from_json, None, {})
            if version == await self._nodes.version(self._paths.config):  # otherwise the reads overlapped a change
                return StoredConfig(datasets, applications, version)

    async def publish(self, change: ConfigChange, entry: HistoryEntry) -> int:
        """See the port."""
        writes = {self._paths.dataset(name): _data(settings) for name, settings in change.datasets.items()}
        writes |= {self._paths.application(name): _data(settings) for name, settings in change.applications.items()}
        record = history_to_json(shortened(entry))
        _check_size(writes, len(record))
        # An empty node is no record, so making these stores nothing yet.
        for path in (self._paths.config, self._paths.history, *writes):
            await self._nodes.ensure(path)

        def commit(client: Any) -> Any:
            transaction = client.transaction()
            transaction.set_data(self._paths.config, b"", version=change.seen)
            for path, data in writes.items():
                transaction.set_data(path, data)
            transaction.create(self._entry, record, sequence=True)
            return transaction.commit_async()

        try:
            results = await self._session.call("store the configuration", commit)
        except CoordinationLost as error:
            error.hint = (
                "whether it was stored is not known: "
                "look at `wormholectl config history`, and apply it again if it was not"
            )
            raise
        self._check(results, change.seen)
        await self._trim()
        return change.seen + 1

    async def record(self, entry: HistoryEntry) -> None:
        """See the port."""
        await self._nodes.ensure(self._paths.history)
        data = history_to_json(shortened(entry))
        await self._session.call(
            "record a change", lambda client: client.create_async(self._entry, data, sequence=True)
        )
        await self._trim()

    async def history(self, limit: int) -> tuple[HistoryEntry, ...]:
        """See the port."""
        names = await self._nodes.children(self._paths.history)

        async def one(name: str) -> HistoryEntry | None:
            path = f"{self._paths.history}/{name}"
            data = await self._nodes.get(path)  # only operators may read the history, so a refusal concerns all entries
            return self._nodes.parsed(path, data, lambda data: history_from_json(data, path), _DELETE_IT)

        return tuple(await self._nodes.each(reversed(names[-limit:]), one))

    @property
    def _entry(self) -> str:
        return f"{self._paths.history}/e"

    def _reader(self, parent: str, parse: Callable[[str, str, str], _Settings]) -> Callable[[Watcher], Any]:
        good: dict[str, _Settings] = {}

        async def read(changed: Watcher) -> dict[str, _Settings]:
            found = await self._all(parent, parse, changed, good)
            if good and not found:
                # Removing the last one is a change, which raises the version. Without a version this ZooKeeper lost its
                # data.
                if not await self._nodes.version(self._paths.config):
                    _log.error(
                        "ZooKeeper holds no configuration at all (%s is empty, version 0): what was read last stays in "
                        "force. Next: "
                        "`wormholectl config apply FILE` with the configuration, or bring ZooKeeper's data back",
                        parent,
                    )
                    return dict(good)
                # The application may have been stored again between the two reads.
                found = await self._all(parent, parse, changed, good)
            good.clear()
            good.update(found)
            return found

        return read

    async def _all(
        self,
        parent: str,
        parse: Callable[[str, str, str], _Settings],
        changed: Watcher | None,
        good: dict[str, _Settings],
    ) -> dict[str, _Settings]:
        left = MOST_BYTES

        async def one(name: str) -> _Settings | None:
            nonlocal left
            path = f"{parent}/{name}"
            data = await self._nodes.get(path, changed) or None
            left -= len(data or b"")
            if left < 0:
                text = f"{parent}: holds more than {MOST_BYTES >> 20} MiB of settings; the rest is left out"
                self._nodes.report(
                    parent,
                    ConfigError(
                        text, hint="find out who makes them, and remove what is not needed", code="record-too-large"
                    ),
                )
                return good.get(name)
            settings = self._nodes.parsed(path, data, lambda raw: parse(name, raw.decode(errors="replace"), path))
            # A mistake in one application's settings must not stop its flows: the last valid settings stay in use.
            return good.get(name) if settings is None and data is not None else settings

        found = await self._nodes.each(await self._nodes.children(parent, changed), one)
        return {settings.name: settings for settings in found}

    def _check(self, results: list[Any], seen: int) -> None:
        error = failure(results)
        if isinstance(error, BadVersionError):
            raise changed_meanwhile(seen)
        if error is not None:
            raise refused("store the configuration", self._session.settings, error)

    async def _trim(self) -> None:
        # The entry is recorded. Entries that are left over now are removed next time.
        with contextlib.suppress(WormholeError):
            names = await self._nodes.children(self._paths.history)
            await self._nodes.each(names[:-HISTORY_KEPT], self._delete)

    async def _delete(self, name: str) -> None:
        with contextlib.suppress(NoNodeError):  # another client trims the history at the same time
            path = f"{self._paths.history}/{name}"
            await self._session.call(f"delete {path}", lambda client: client.delete_async(path))


def _data(settings: ApplicationConfig | DatasetConfig | None) -> bytes:
    return b"" if settings is None else to_json(settings).encode()


def _check_size(writes: dict[str, bytes], record: int) -> None:
    sizes = {path: len(path) + len(data) + _OVERHEAD for path, data in writes.items()}
    total = sum(sizes.values()) + record + _OVERHEAD
    if total > LARGEST_NODE:
        largest = max(sizes, key=lambda path: sizes[path])
        raise ConfigError(
            f"the change has {total:,} bytes, and ZooKeeper takes at most {LARGEST_NODE:,} at once; the largest part "
            f"is {largest} with "
            f"{sizes[largest]:,}",
            hint="apply it in parts: files with some of the applications each; what a file lacks stays as it is",
            code="record-too-large",
        )
