"""Datamarkers in ZooKeeper, for copies or hosts that take over from each other.

One node per flow. A write names the version it read, so a change of the node in between makes it fail: the epoch is
checked again and the write repeated or refused. Several markers go in one ZooKeeper transaction. Nobody owns the store;
epochs say who may write.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from publisher.stores.dead_letters.zookeeper import ZooKeeperDeadLetters
from publisher.stores.markers.rules import accepts, flow_from_json, flow_to_json, in_place_of, moved, raised, written
from wormhole.config import CoordinatorConfig
from wormhole.coordination.kazoo_client import (
    ANSWERS,
    LOST_ERRORS,
    after_refusal,
    connect_blocking,
    disconnect_blocking,
    hosts_and_root,
    lost,
    new_client,
)
from wormhole.coordination.records import Paths
from wormhole.host.clock import SYSTEM_CLOCK
from wormhole.model.errors import MarkerStoreError
from wormhole.model.position import Datamarker
from wormhole.ports.marker_store import UNASKED, FlowControl, FlowKey, MarkerWrite, StoredFlow

__all__ = ["ZooKeeperMarkerStore"]

_log = logging.getLogger(__name__)

# Keeps one transaction well below ZooKeeper's limit of 1 MB for a request.
_WRITES_PER_TRANSACTION: Final = 100
_BYTES_PER_TRANSACTION: Final = 400_000  # of pages of counts, each with its path, and of backfills' progress
_NODE_BYTES: Final = 200
# Each lost race means that somebody else wrote; with epochs, two writers of one flow meet a few times at most.
_RACES: Final = 20


_T = TypeVar("_T")


class ZooKeeperMarkerStore:
    """The ZooKeeper form of the port, for the shards of ``log`` (``<log>`` and ``<log>.…``). Methods block."""

    def __init__(self, settings: CoordinatorConfig, log: str) -> None:
        self._settings = settings
        self._log = log
        self._paths = Paths(hosts_and_root(settings)[1])
        self._mutex = threading.Lock()
        # Threads of one process take turns, so that a lost race always means another process.
        self._writing = threading.Lock()
        self._client: Any = None

    def __repr__(self) -> str:
        return f"<ZooKeeperMarkerStore {self._settings.zookeeper} log {self._log}>"

    @property
    def owner(self) -> str:
        return ""

    def open(self) -> None:
        with self._mutex:
            if self._client is None:
                client = new_client(self._settings)
                connect_blocking(client, self._settings)
                self._client = client

    def close(self) -> None:
        with self._mutex:
            client, self._client = self._client, None
            if client is not None:
                disconnect_blocking(client)

    def load(self, application: str | None = None) -> Mapping[FlowKey, StoredFlow]:
        found: dict[FlowKey, StoredFlow] = {}
        for name in [application] if application is not None else self._children(self._paths.applications):
            shards = self._children(self._paths.markers(name))
            flows = [(name, shard) for shard in shards if shard == self._log or shard.startswith(f"{self._log}.")]
            found |= {flow: stored for flow, (stored, _) in self._get_all(flows).items()}
        return found

    def register(
        self, flow: FlowKey, marker: Datamarker, start: str, epoch: int = 0, control: FlowControl = UNASKED
    ) -> StoredFlow:
        stored = StoredFlow(marker, epoch, start, control=control)
        path, data = self._path(flow), flow_to_json(stored)
        try:
            self._ask(f"register {path}", lambda client: client.create_async(path, data, makepath=True))
        except NodeExistsError:
            return self._registered(flow, stored)
        return stored

    def register_all(self, records: Mapping[FlowKey, StoredFlow]) -> Mapping[FlowKey, StoredFlow]:
        found: dict[FlowKey, StoredFlow] = {}
        folders = {self._paths.markers(application) for application, _ in records}
        for made in self._ask_all("make datamarkers", [_making(folder) for folder in sorted(folders)]):
            with contextlib.suppress(NodeExistsError):
                made()
        with self._writing:
            for group in _groups(list(records.items()), lambda one: _in_base64(one[1].marker.backfill)):
                if self._create(group):
                    found |= dict(group)
                    continue
                for flow, record in group:  # some are there already, or made by somebody else
                    found[flow] = self.register(flow, record.marker, record.start, record.epoch, record.control)
        return found

    def raise_epoch(self, flow: FlowKey, above: int = 0) -> int:
        return self._change(flow, lambda stored: raised(stored, above)).epoch

    def raise_epochs(self, flows: Mapping[FlowKey, int]) -> Mapping[FlowKey, int]:
        epochs: dict[FlowKey, int] = {}
        with self._writing:
            for race in range(_RACES):
                _step_aside(race)
                found = self._get_all(flows.keys() - epochs.keys())
                changes = [(flow, raised(one, flows[flow]), at) for flow, (one, at) in found.items()]
                for group in _groups(changes, lambda change: _in_base64(change[1].marker.backfill)):
                    if self._commit(group, {}):
                        epochs |= {flow: stored.epoch for flow, stored, _ in group}
                if epochs.keys() >= found.keys():
                    return epochs
        raise self._too_many_races(", ".join(sorted(f"{app}/{shard}" for app, shard in flows.keys() - epochs.keys())))

    def store(self, writes: Sequence[MarkerWrite]) -> tuple[FlowKey, ...]:
        refused: list[FlowKey] = []
        with self._writing:
            for group in _groups(writes, _bytes_of):
                refused += self._store(group)
        return tuple(refused)

    def delivery_counts(self, flows: Collection[FlowKey]) -> Mapping[FlowKey, Mapping[str, bytes]]:
        folders = {flow: self._paths.delivery_counts(*flow) for flow in flows}
        listed = self._ask_all("list delivery counts", [_listing(folder) for folder in folders.values()])
        found: dict[FlowKey, dict[str, bytes]] = {flow: {} for flow in flows}
        pages: list[tuple[FlowKey, str]] = []
        for flow, names in zip(folders, listed, strict=True):
            with contextlib.suppress(NoNodeError):
                pages += [(flow, name) for name in sorted(names())]
        asked = self._ask_all("read delivery counts", [_getting(f"{folders[flow]}/{name}") for flow, name in pages])
        for (flow, name), answer in zip(pages, asked, strict=True):
            with contextlib.suppress(NoNodeError):  # deleted since it was listed
                found[flow][name] = bytes(answer()[0])
        return found

    def rewind(self, flow: FlowKey, marker: Datamarker) -> int:
        return self._change(flow, lambda stored: moved(stored, marker)).epoch

    def set_control(self, flow: FlowKey, control: FlowControl, was: FlowControl | None = None) -> bool:
        def changed(stored: StoredFlow) -> StoredFlow:
            return replace(stored, control=control) if was in (None, stored.control) else stored

        return self._change(flow, changed).control == control

    def forget(self, flow: FlowKey) -> None:
        path = self._path(flow)
        with contextlib.suppress(NoNodeError):
            self._ask(f"forget {path}", lambda client: client.delete_async(path))
        folder = self._paths.delivery_counts(*flow)
        below = [f"{folder}/{name}" for name in self._children(folder)]
        for answer in self._ask_all(f"forget {folder}", [_deleting(name) for name in (*below, folder)]):
            with contextlib.suppress(NoNodeError):
                answer()

    def dead_letters(self) -> ZooKeeperDeadLetters:
        return ZooKeeperDeadLetters(self._paths, self._ask, self._get)

    # --- inside ------------------------------------------------------------------------------------------------

    def _store(self, writes: Sequence[MarkerWrite]) -> list[FlowKey]:
        for race in range(_RACES):
            _step_aside(race)
            refused: list[FlowKey] = []
            records = self._get_all({write.flow for write in writes})
            accepted: dict[FlowKey, StoredFlow] = {}
            pages: dict[str, bytes] = {}
            for write in writes:
                if write.flow not in records:
                    refused.append(write.flow)
                    continue
                stored = accepted.get(write.flow, records[write.flow][0])
                if accepts(stored, write):
                    accepted[write.flow] = written(stored, write)
                    folder = self._paths.delivery_counts(*write.flow)
                    pages |= {f"{folder}/{name}": page for name, page in write.counts.items()}
                else:
                    refused.append(write.flow)
            if not accepted or self._commit([(flow, new, records[flow][1]) for flow, new in accepted.items()], pages):
                return refused
        raise self._too_many_races(", ".join(sorted(f"{app}/{shard}" for app, shard in {w.flow for w in writes})))

    def _commit(self, changes: Sequence[tuple[FlowKey, StoredFlow, int]], pages: Mapping[str, bytes]) -> bool:
        """Write all of ``changes`` and ``pages`` of counts (by path) or none; false when a node is not at the version
        that was read.
        """
        known = self._known(pages)

        def ask(client: Any) -> Any:
            transaction = client.transaction()
            for flow, stored, version in changes:
                transaction.set_data(self._path(flow), flow_to_json(stored), version)
            for path, page in pages.items():
                if page and path in known:
                    transaction.set_data(path, page)
                elif page:
                    transaction.create(path, page)
                elif path in known:
                    transaction.delete(path)
            return transaction.commit_async()

        results = self._ask("store datamarkers", ask)
        failures = [result for result in results if isinstance(result, Exception)]
        races = (BadVersionError, NoNodeError, NodeExistsError, RolledBackError, RuntimeInconsistency)
        for failure in failures:
            if not isinstance(failure, races):
                raise self._failure("store datamarkers", failure) from failure
        return not failures

    def _known(self, pages: Mapping[str, bytes]) -> set[str]:
        """Which pages are there; makes the folders of those that are not."""
        asked = self._ask_all("look for delivery counts", [_looking(path) for path in pages])
        known = {path for path, answer in zip(pages, asked, strict=True) if answer() is not None}
        folders = {path.rpartition("/")[0] for path, page in pages.items() if page and path not in known}
        for answer in self._ask_all("make delivery counts", [_making(folder) for folder in sorted(folders)]):
            with contextlib.suppress(NodeExistsError):
                answer()
        return known

    def _create(self, records: Sequence[tuple[FlowKey, StoredFlow]]) -> bool:
        """Create all of the records or none; whether that was done."""

        def ask(client: Any) -> Any:
            transaction = client.transaction()
            for flow, stored in records:
                transaction.create(self._path(flow), flow_to_json(stored))
            return transaction.commit_async()

        return not any(isinstance(result, Exception) for result in self._ask("register flows", ask))

    def _change(self, flow: FlowKey, change: Callable[[StoredFlow], StoredFlow]) -> StoredFlow:
        path = self._path(flow)
        with self._writing:
            for race in range(_RACES):
                _step_aside(race)
                stored, version = self._get(flow)
                changed = change(stored)
                ask = _setting(path, flow_to_json(changed), version)
                try:
                    self._ask(f"write {path}", ask)
                except BadVersionError:
                    continue
                except NoNodeError:
                    raise KeyError(flow) from None
                return changed
        raise self._too_many_races(path)

    def _registered(self, flow: FlowKey, wanted: StoredFlow) -> StoredFlow:
        """What is stored already; in place of what cannot be read ``wanted``, held."""
        path = self._path(flow)
        for race in range(_RACES):
            _step_aside(race)
            try:
                return self._get(flow)[0]
            except MarkerStoreError as error:
                if error.flow is None:
                    raise
                _, stat = self._ask(f"read {path}", lambda client: client.get_async(path))
                version = int(stat.version)
                anew = in_place_of(error, wanted.marker, max(wanted.epoch, version), wanted.start)
                with contextlib.suppress(BadVersionError):
                    self._ask(f"write {path}", _setting(path, flow_to_json(anew), version))
                    return anew
        raise self._too_many_races(path)

    def _get(self, flow: FlowKey) -> tuple[StoredFlow, int]:
        path = self._path(flow)
        try:
            data, stat = self._ask(f"read {path}", lambda client: client.get_async(path))
        except NoNodeError:
            raise KeyError(flow) from None
        return flow_from_json(flow, bytes(data), path), int(stat.version)

    def _get_all(self, flows: Iterable[FlowKey]) -> dict[FlowKey, tuple[StoredFlow, int]]:
        """The records of ``flows`` that exist and are valid, with their versions: asked for together, so that it takes
        one round trip.
        """
        wanted = {flow: self._path(flow) for flow in flows}
        asked = self._ask_all("read datamarkers", [_getting(path) for path in wanted.values()])
        found: dict[FlowKey, tuple[StoredFlow, int]] = {}
        for (flow, path), answer in zip(wanted.items(), asked, strict=True):
            with contextlib.suppress(NoNodeError):
                data, stat = answer()
                try:
                    found[flow] = flow_from_json(flow, bytes(data), path), int(stat.version)
                except MarkerStoreError as error:  # of this flow only; the others are stored
                    _log.error("%s", error)
        return found

    def _children(self, path: str) -> list[str]:
        try:
            return sorted(self._ask(f"list {path}", lambda client: client.get_children_async(path)))
        except NoNodeError:
            return []

    def _path(self, flow: FlowKey) -> str:
        return self._paths.marker(*flow)

    def _ask(self, what: str, ask: Callable[[Any], Any]) -> Any:
        return self._ask_all(what, [ask])[0]()

    def _ask_all(self, what: str, asks: Sequence[Callable[[Any], Any]]) -> list[Callable[[], Any]]:
        """Ask everything at once; each of the results waits for its answer or raises."""
        client = self._client
        if client is None:
            raise MarkerStoreError("the marker store is not open", hint="call open() first")
        if not client.connected:
            raise lost(what, self._settings)
        return [partial(self._answer, what, ask(client)) for ask in asks]

    def _answer(self, what: str, asked: Any) -> Any:
        try:
            return asked.get(timeout=self._settings.session_timeout)
        except LOST_ERRORS as error:
            raise lost(what, self._settings, error) from error
        except ANSWERS:
            raise
        except KazooException as error:
            raise self._failure(what, error) from error

    def _failure(self, what: str, error: Exception) -> MarkerStoreError:
        return MarkerStoreError(
            f"ZooKeeper {self._settings.zookeeper} refuses to {what}: {type(error).__name__} {error}".rstrip(),
            hint=after_refusal(self._settings, error),
        )

    def _too_many_races(self, what: str) -> MarkerStoreError:
        return MarkerStoreError(
            f"somebody else keeps writing {what} in ZooKeeper {self._settings.zookeeper}",
            hint="two publishers serve the same log with the same epoch: end one of them",
        )


def _getting(path: str) -> Callable[[Any], Any]:
    return lambda client: client.get_async(path)


def _listing(path: str) -> Callable[[Any], Any]:
    return lambda client: client.get_children_async(path)


def _looking(path: str) -> Callable[[Any], Any]:
    return lambda client: client.exists_async(path)


def _making(folder: str) -> Callable[[Any], Any]:
    return lambda client: client.create_async(folder, b"", makepath=True)


def _deleting(path: str) -> Callable[[Any], Any]:
    return lambda client: client.delete_async(path)


def _groups(items: Iterable[_T], size_of: Callable[[_T], int]) -> Iterator[list[_T]]:
    """As many at a time as go into one transaction. ``size_of``: bytes of one beside its record."""
    group: list[_T] = []
    size = 0
    for item in items:
        more = size_of(item)
        if group and (len(group) == _WRITES_PER_TRANSACTION or size + more > _BYTES_PER_TRANSACTION):
            yield group
            group, size = [], 0
        group.append(item)
        size += more
    if group:
        yield group


def _bytes_of(write: MarkerWrite) -> int:
    return sum(_NODE_BYTES + len(page) for page in write.counts.values()) + _in_base64(write.marker.backfill)


def _in_base64(data: bytes) -> int:
    return (len(data) + 2) // 3 * 4


def _setting(path: str, data: bytes, version: int) -> Callable[[Any], Any]:
    return lambda client: client.set_async(path, data, version)


def _step_aside(race: int) -> None:
    """Before another try, a moment that grows with the races lost, jittered so that two writers do not keep step."""
    if race:
        SYSTEM_CLOCK.pause(random.uniform(0, 0.005 * race))
