"""Datamarkers in ZooKeeper, for copies or hosts that take over from each other.

One node per flow. A write names the version it read, so a change of the node in between makes it fail: the epoch is
checked again and the write repeated or refused. Several markers go in one ZooKeeper transaction. Epochs say who may
write a flow; where publishers contend for a log, each transaction also checks that its writer still owns it.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from kazoo.exceptions import NodeExistsError, NoNodeError

from publisher.stores.dead_letters.zookeeper import ZooKeeperDeadLetters
from publisher.stores.guarded_client import RACES, Ask, Fill, GuardedClient, has
from publisher.stores.markers.rules import accepts, flow_from_json, flow_to_json, in_place_of, moved, raised, written
from publisher.stores.source_state import ZooKeeperSourceState
from wormhole.config import CoordinatorConfig
from wormhole.coordination.kazoo_client import hosts_and_root
from wormhole.coordination.port import LogGroup
from wormhole.coordination.records import Paths
from wormhole.host.clock import SYSTEM_CLOCK
from wormhole.model.errors import MarkerStoreError
from wormhole.model.position import Datamarker, flow_name
from wormhole.ports.marker_store import UNASKED, FlowControl, FlowKey, MarkerWrite, StoredFlow

__all__ = ["ZooKeeperMarkerStore"]

_log = logging.getLogger(__name__)

# Keeps one transaction well below ZooKeeper's limit of 1 MB for a request.
_WRITES_PER_TRANSACTION: Final = 100
_BYTES_PER_TRANSACTION: Final = 400_000  # of pages of counts, each with its path, and of backfills' progress
_NODE_BYTES: Final = 200

_T = TypeVar("_T")


class ZooKeeperMarkerStore:
    """The ZooKeeper form of the port, for the shards of ``log`` (``<log>`` and ``<log>.…``). Methods block."""

    def __init__(self, settings: CoordinatorConfig, log: str) -> None:
        self._settings = settings
        self._log = log
        self._paths = Paths(hosts_and_root(settings)[1])
        self._client = GuardedClient(settings)
        # Threads of one process take turns, so that a lost race always means another process.
        self._writing = threading.Lock()

    def __repr__(self) -> str:
        return f"<ZooKeeperMarkerStore {self._settings.zookeeper} log {self._log}>"

    @property
    def owner(self) -> str:
        return ""

    def open(self) -> None:
        self._client.open()

    def close(self) -> None:
        self._client.close()

    def guard(self, fence: Callable[[], str]) -> None:
        """Write from now on only while the node is there whose path ``fence`` returns: this publisher's claim on the
        log. Every method that writes raises :class:`~wormhole.model.errors.CoordinationLost` once it is gone; what its
        present transaction would have written is not written.

        An empty path checks nothing before the first claim; after that nothing is written any more.
        """
        self._client.guard(fence)

    def source_state(self, group: LogGroup) -> ZooKeeperSourceState:
        """What the source knows of the servers behind the log, for each host that may own the log as one of ``group``;
        usable while this store is open.
        """
        return ZooKeeperSourceState(self._paths, group, self._client)

    def load(self, application: str | None = None) -> Mapping[FlowKey, StoredFlow]:
        found: dict[FlowKey, StoredFlow] = {}
        self._client.catch_up()
        children = self._client.children
        for name in [application] if application is not None else children(self._paths.applications):
            shards = children(self._paths.markers(name))
            flows = [(name, shard) for shard in shards if shard == self._log or shard.startswith(f"{self._log}.")]
            found |= {flow: stored for flow, (stored, _) in self._get_all(flows).items()}
        return found

    def register(
        self, flow: FlowKey, marker: Datamarker, start: str, epoch: int = 0, control: FlowControl = UNASKED
    ) -> StoredFlow:
        stored = StoredFlow(marker, epoch, start, control=control)
        path = self._path(flow)
        for _ in range(RACES):
            failures = self._client.transact(f"register {path}", _creating(path, flow_to_json(stored)))
            if not failures:
                return stored
            if has(failures, NodeExistsError):
                return self._registered(flow, stored)
            self._client.make([self._paths.markers(flow[0])])
        raise self._client.too_many_races(path)

    def register_all(self, records: Mapping[FlowKey, StoredFlow]) -> Mapping[FlowKey, StoredFlow]:
        found: dict[FlowKey, StoredFlow] = {}
        self._client.make({self._paths.markers(application) for application, _ in records})
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
            for race in range(RACES):
                _step_aside(race)
                found = self._get_all(flows.keys() - epochs.keys())
                changes = [(flow, raised(one, flows[flow]), at) for flow, (one, at) in found.items()]
                for group in _groups(changes, lambda change: _in_base64(change[1].marker.backfill)):
                    if self._commit(group, {}):
                        epochs |= {flow: stored.epoch for flow, stored, _ in group}
                if epochs.keys() >= found.keys():
                    return epochs
        raise self._client.too_many_races(_names(flows.keys() - epochs.keys()))

    def store(self, writes: Sequence[MarkerWrite]) -> tuple[FlowKey, ...]:
        refused: list[FlowKey] = []
        with self._writing:
            for group in _groups(writes, _bytes_of):
                refused += self._store(group)
        if refused:
            self._client.check()  # of a log that is another publisher's now no single flow is refused
        return tuple(refused)

    def delivery_counts(self, flows: Collection[FlowKey]) -> Mapping[FlowKey, Mapping[str, bytes]]:
        folders = {flow: self._paths.delivery_counts(*flow) for flow in flows}
        listed = self._client.ask_all("list delivery counts", [_listing(folder) for folder in folders.values()])
        found: dict[FlowKey, dict[str, bytes]] = {flow: {} for flow in flows}
        pages: list[tuple[FlowKey, str]] = []
        for flow, names in zip(folders, listed, strict=True):
            with contextlib.suppress(NoNodeError):
                pages += [(flow, name) for name in sorted(names())]
        paths = [f"{folders[flow]}/{name}" for flow, name in pages]
        asked = self._client.ask_all("read delivery counts", map(_getting, paths))
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
        path, folder = self._path(flow), self._paths.delivery_counts(*flow)
        self._client.transact(f"forget {path}", _deleting(path))  # nothing is wrong with what is gone already
        below = [f"{folder}/{name}" for name in self._client.children(folder)]
        self._client.transact_all(f"forget {folder}", [_deleting(name) for name in (*below, folder)])

    def dead_letters(self) -> ZooKeeperDeadLetters:
        return ZooKeeperDeadLetters(self._paths, self._client, self._get)

    # --- inside ------------------------------------------------------------------------------------------------

    def _store(self, writes: Sequence[MarkerWrite]) -> list[FlowKey]:
        for race in range(RACES):
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
        raise self._client.too_many_races(_names(write.flow for write in writes))

    def _commit(self, changes: Sequence[tuple[FlowKey, StoredFlow, int]], pages: Mapping[str, bytes]) -> bool:
        """Write all of ``changes`` and ``pages`` of counts (by path) or none; false when a node is not at the version
        that was read.
        """
        known = self._known(pages)

        def fill(transaction: Any) -> None:
            for flow, stored, version in changes:
                transaction.set_data(self._path(flow), flow_to_json(stored), version)
            for path, page in pages.items():
                if page and path in known:
                    transaction.set_data(path, page)
                elif page:
                    transaction.create(path, page)
                elif path in known:
                    transaction.delete(path)

        return not self._client.transact("store datamarkers", fill)

    def _known(self, pages: Mapping[str, bytes]) -> set[str]:
        """Which pages are there; makes the folders of those that are not."""
        asked = self._client.ask_all("look for delivery counts", map(_looking, pages))
        known = {path for path, answer in zip(pages, asked, strict=True) if answer() is not None}
        self._client.make({path.rpartition("/")[0] for path, page in pages.items() if page and path not in known})
        return known

    def _create(self, records: Sequence[tuple[FlowKey, StoredFlow]]) -> bool:
        """Create all of the records or none; whether that was done."""

        def fill(transaction: Any) -> None:
            for flow, stored in records:
                transaction.create(self._path(flow), flow_to_json(stored))

        return not self._client.transact("register flows", fill)

    def _change(self, flow: FlowKey, change: Callable[[StoredFlow], StoredFlow]) -> StoredFlow:
        path = self._path(flow)
        with self._writing:
            for race in range(RACES):
                _step_aside(race)
                stored, version = self._get(flow)
                changed = change(stored)
                failures = self._client.transact(f"write {path}", _setting(path, flow_to_json(changed), version))
                if not failures:
                    return changed
                if has(failures, NoNodeError):
                    raise KeyError(flow)
        raise self._client.too_many_races(path)

    def _registered(self, flow: FlowKey, wanted: StoredFlow) -> StoredFlow:
        """What is stored already; in place of what cannot be read ``wanted``, held."""
        path = self._path(flow)
        for race in range(RACES):
            _step_aside(race)
            try:
                return self._get(flow)[0]
            except MarkerStoreError as error:
                if error.flow is None:
                    raise
                _, stat = self._client.ask(f"read {path}", _getting(path))
                version = int(stat.version)
                anew = in_place_of(error, wanted.marker, max(wanted.epoch, version), wanted.start)
                if not self._client.transact(f"write {path}", _setting(path, flow_to_json(anew), version)):
                    return anew
        raise self._client.too_many_races(path)

    def _get(self, flow: FlowKey) -> tuple[StoredFlow, int]:
        path = self._path(flow)
        try:
            data, stat = self._client.ask(f"read {path}", _getting(path))
        except NoNodeError:
            raise KeyError(flow) from None
        return flow_from_json(flow, bytes(data), path), int(stat.version)

    def _get_all(self, flows: Iterable[FlowKey]) -> dict[FlowKey, tuple[StoredFlow, int]]:
        """The records of ``flows`` that exist and are valid, with their versions: asked for together, so that it takes
        one round trip.
        """
        wanted = {flow: self._path(flow) for flow in flows}
        asked = self._client.ask_all("read datamarkers", map(_getting, wanted.values()))
        found: dict[FlowKey, tuple[StoredFlow, int]] = {}
        for (flow, path), answer in zip(wanted.items(), asked, strict=True):
            with contextlib.suppress(NoNodeError):
                data, stat = answer()
                try:
                    found[flow] = flow_from_json(flow, bytes(data), path), int(stat.version)
                except MarkerStoreError as error:  # of this flow only; the others are stored
                    _log.error("%s", error)
        return found

    def _path(self, flow: FlowKey) -> str:
        return self._paths.marker(*flow)


def _getting(path: str) -> Ask:
    return lambda client: client.get_async(path)


def _listing(path: str) -> Ask:
    return lambda client: client.get_children_async(path)


def _looking(path: str) -> Ask:
    return lambda client: client.exists_async(path)


def _creating(path: str, data: bytes) -> Fill:
    return lambda transaction: transaction.create(path, data)


def _setting(path: str, data: bytes, version: int) -> Fill:
    return lambda transaction: transaction.set_data(path, data, version)


def _deleting(path: str) -> Fill:
    return lambda transaction: transaction.delete(path)


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


def _names(flows: Iterable[FlowKey]) -> str:
    return ", ".join(sorted({flow_name(*flow) for flow in flows}))


def _bytes_of(write: MarkerWrite) -> int:
    return sum(_NODE_BYTES + len(page) for page in write.counts.values()) + _in_base64(write.marker.backfill)


def _in_base64(data: bytes) -> int:
    return (len(data) + 2) // 3 * 4


def _step_aside(race: int) -> None:
    """Before another try, a moment that grows with the races lost, jittered so that two writers do not keep step."""
    if race:
        SYSTEM_CLOCK.pause(random.uniform(0, 0.005 * race))
