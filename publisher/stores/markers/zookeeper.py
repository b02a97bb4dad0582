"""Datamarkers in ZooKeeper, for copies or hosts that take over from each other.

Each flow is a node. A write names the version that it read, so it fails if the node changed in between. Then the epoch
is checked again, and the write is repeated or refused. A ZooKeeper transaction writes several markers, up to a size
limit. If a record alone is too large, only its flow is held. Epochs determine which publisher may write a flow. If
several publishers may serve a log, each transaction also checks that its writer still owns the log.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kazoo.exceptions import NodeExistsError, NoNodeError

from publisher.stores.dead_letters.zookeeper import ZooKeeperDeadLetters
from publisher.stores.guarded_client import (
    MOST_BYTES,
    RACES,
    Ask,
    Fill,
    GuardedClient,
    TooLargeError,
    creating,
    deleting,
    getting,
    has,
    setting,
)
from publisher.stores.markers.rules import (
    accepts,
    control_to_text,
    flow_from_json,
    flow_to_json,
    in_place_of,
    moved,
    raised,
    written,
)
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

_READ_TOGETHER: Final = 100
"""The number of flows whose records are read and written together."""


_DELIVERED = (
    "the server's set of executed transactions has too many gaps: let replicas commit in the order of their primary, "
    "fill the gaps with empty transactions, then restart the publisher; a log that one host serves may have "
    'publisher.markers = "local" instead, which has no such limit'
)
_PROGRESS = "cancel its backfill with `wormholectl backfill cancel`, and ask for one of fewer tables at a time"
_CONTROL = "ask less of it at a time: fewer tables of a backfill, fewer updates to skip"
_COUNTS = "restart the publisher, and report this as a bug"


def too_large(flow: FlowKey, stored: StoredFlow, size: int, counts: int = 0) -> MarkerStoreError:
    """The error for a record that is too large. ``size``: bytes of the request that would write it. ``counts``: bytes
    of the delivery counts in that request.
    """
    delivered, progress = len(stored.marker.delivered.encode()), len(stored.marker.backfill)
    control = len(control_to_text(stored.control).encode())
    _, part, what, hint = max(
        # The datamarker is in the record twice: as its bytes, in base64, and as text.
        (_in_base64(delivered) + delivered, delivered, "what was delivered before its place", _DELIVERED),
        (_in_base64(progress), progress, "how far its backfill came", _PROGRESS),
        (control, control, "what was asked of it", _CONTROL),
        (counts, counts, "its counts of deliveries", _COUNTS),
    )
    return MarkerStoreError(
        f"its record is too large to be stored: the request has {size:,} bytes, and ZooKeeper takes {MOST_BYTES:,} at "
        f"most; {part:,} bytes are {what}",
        flow=flow_name(*flow),
        hint=hint,
        code="record-too-large",
    )


def _in_base64(size: int) -> int:
    return (size + 2) // 3 * 4


class ZooKeeperMarkerStore:
    """The ZooKeeper form of the port, for the shards of ``log`` (``<log>`` and ``<log>.…``). Methods block."""

    def __init__(self, settings: CoordinatorConfig, log: str) -> None:
        self._settings = settings
        self._log = log
        self._paths = Paths(hosts_and_root(settings)[1])
        self._client = GuardedClient(settings)
        # Threads of one process take turns, so that a lost race is always against another process.
        self._writing = threading.Lock()
        self._versions: dict[FlowKey, tuple[int, int]] = {}
        """For each record that this process wrote, the transaction that made it, and its last known version."""
        # By flow: the epoch and the error of a datamarker that was too large. Such a flow gets no new epoch, because
        # later datamarkers could not be stored either.
        self._held: dict[FlowKey, tuple[int, MarkerStoreError]] = {}

    def __repr__(self) -> str:
        return f"<ZooKeeperMarkerStore {self._settings.zookeeper} log {self._log}>"

    @property
    def owner(self) -> str:
        return ""

    def open(self) -> None:
        self._client.open()

    def close(self) -> None:
        self._client.close()

    def guard(self, fence: Callable[[], str], put_back: Callable[[str], object] = lambda reason: None) -> None:
        """Write only while this publisher's claim on the log exists. ``fence``: returns the path of the claim's node.
        Once the claim is gone, methods that write raise :class:`~wormhole.model.errors.CoordinationLost` and their
        transactions do not commit.

        Before the first claim the path is empty, and writes check nothing. An empty path after a claim refuses writes.
        ``put_back``: called, from any thread, with the reason if a record is older than before, which means that
        ZooKeeper's data was restored. Later writes are refused too.
        """
        self._client.guard(fence, put_back)

    def source_state(self, group: LogGroup) -> ZooKeeperSourceState:
        """The source's documents about the servers behind the log, which the possible owners of the log in ``group``
        share. Usable while this store is open.
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
        create = creating(path, flow_to_json(stored))
        for _ in range(RACES):
            failures = self._write(flow, stored, f"register {path}", create)
            if not failures:
                return stored
            if has(failures, NodeExistsError):
                return self._registered(flow, stored)
            self._client.make([self._paths.markers(flow[0])])
        raise self._client.too_many_races(path)

    def register_all(self, records: Mapping[FlowKey, StoredFlow]) -> Mapping[FlowKey, StoredFlow]:
        found: dict[FlowKey, StoredFlow] = {}
        refused: list[MarkerStoreError] = []
        self._client.make({self._paths.markers(application) for application, _ in records})
        creates = (creating(self._path(flow), flow_to_json(record)) for flow, record in records.items())
        with self._writing:
            created = self._client.transact_grouped("register flows", creates)
            for (flow, record), failures in zip(records.items(), created, strict=True):
                if not failures:
                    found[flow] = record
                elif error := _too_large(flow, record, failures):
                    refused.append(error)
                else:  # this flow, or another flow of the same transaction, has a record already
                    found[flow] = self.register(flow, record.marker, record.start, record.epoch, record.control)
        if refused:  # raised, because without this flow the other flows would pass updates that it needs
            raise refused[0]
        return found

    def raise_epoch(self, flow: FlowKey, above: int = 0) -> int:
        def change(stored: StoredFlow) -> StoredFlow:
            if (error := self._held_by(flow, stored)) is not None:
                raise MarkerStoreError(error.message, flow=error.flow, hint=error.hint, code=error.code)
            return raised(stored, above)

        return self._change(flow, change).epoch

    def raise_epochs(self, flows: Mapping[FlowKey, int]) -> Mapping[FlowKey, int]:
        epochs: dict[FlowKey, int] = {}
        left = set(flows)
        with self._writing:
            for race in range(RACES):
                _step_aside(race)
                found = self._get_all(left, to_write=True)
                free = {flow: one for flow, (one, _) in found.items() if self._held_by(flow, one) is None}
                changes = {flow: raised(one, flows[flow]) for flow, one in free.items()}
                left.clear()
                for flow, failures in self._commit(changes, {}, found).items():
                    if not failures:
                        epochs[flow] = changes[flow].epoch
                    elif not has(failures, TooLargeError):  # a request to raise its epoch alone raises the reason
                        left.add(flow)
                if not left:
                    return epochs
        raise self._client.too_many_races(_names(left))

    def store(self, writes: Sequence[MarkerWrite]) -> tuple[FlowKey, ...]:
        refused: list[FlowKey] = []
        with self._writing:
            for at in range(0, len(writes), _READ_TOGETHER):
                refused += self._store(writes[at : at + _READ_TOGETHER])
        if refused:
            self._client.check()  # raises if another publisher owns the log now, so that no single flow is reported
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
        asked = self._client.ask_all("read delivery counts", map(getting, paths))
        for (flow, name), answer in zip(pages, asked, strict=True):
            with contextlib.suppress(NoNodeError):  # the page was deleted since it was listed
                found[flow][name] = bytes(answer()[0])
        return found

    def rewind(self, flow: FlowKey, marker: Datamarker, *, counts: bool = True) -> int:
        return self._change(flow, lambda stored: moved(stored, marker, counts=counts)).epoch

    def set_control(self, flow: FlowKey, control: FlowControl, was: FlowControl | None = None) -> bool:
        def changed(stored: StoredFlow) -> StoredFlow:
            return replace(stored, control=control) if was in (None, stored.control) else stored

        done = self._change(flow, changed).control == control
        self._held.pop(flow, None)  # the record may have been too large because of its control
        return done

    def forget(self, flow: FlowKey) -> None:
        path, folder = self._path(flow), self._paths.delivery_counts(*flow)
        self._held.pop(flow, None)
        self._client.transact(f"forget {path}", deleting(path))  # the node may be gone already
        below = [f"{folder}/{name}" for name in self._client.children(folder)]
        self._client.transact_all(f"forget {folder}", [deleting(name) for name in (*below, folder)])

    def dead_letters(self) -> ZooKeeperDeadLetters:
        return ZooKeeperDeadLetters(self._paths, self._client, self._beside)

    # --- inside ------------------------------------------------------------------------------------------------

    def _store(self, writes: Sequence[MarkerWrite]) -> list[FlowKey]:
        refused: list[FlowKey] = []
        for race in range(RACES):
            _step_aside(race)
            records = self._get_all({write.flow for write in writes}, to_write=True)
            accepted: dict[FlowKey, StoredFlow] = {}
            pages: dict[FlowKey, dict[str, bytes]] = {}
            late: list[FlowKey] = []
            for write in writes:
                if write.flow not in records:
                    late.append(write.flow)
                    continue
                stored = accepted.get(write.flow, records[write.flow][0])
                if accepts(stored, write):
                    accepted[write.flow] = written(stored, write)
                    folder = self._paths.delivery_counts(*write.flow)
                    pages.setdefault(write.flow, {}).update({f"{folder}/{k}": page for k, page in write.counts.items()})
                else:
                    late.append(write.flow)
            raced: set[FlowKey] = set()
            for flow, failures in self._commit(accepted, pages, records).items():
                if error := _too_large(flow, accepted[flow], failures, sum(map(len, pages[flow].values()))):
                    self._hold(flow, accepted[flow].epoch, error)
                    refused.append(flow)
                elif failures:
                    raced.add(flow)
                else:
                    self._held.pop(flow, None)
            refused += [flow for flow in late if flow not in raced]
            writes = [write for write in writes if write.flow in raced]
            if not writes:
                return refused
        raise self._client.too_many_races(_names(write.flow for write in writes))

    def _hold(self, flow: FlowKey, epoch: int, error: MarkerStoreError) -> None:
        if self._held.get(flow, (-1, None))[0] != epoch:
            _log.error("%s", error)
        self._held[flow] = epoch, error

    def _held_by(self, flow: FlowKey, stored: StoredFlow) -> MarkerStoreError | None:
        """Why the flow gets no new epoch; ``None`` if it may get one, for example after another publisher raised it."""
        epoch, error = self._held.get(flow, (-1, None))
        return error if epoch == stored.epoch else None

    def _commit(
        self,
        changes: Mapping[FlowKey, StoredFlow],
        pages: Mapping[FlowKey, Mapping[str, bytes]],
        records: Mapping[FlowKey, tuple[StoredFlow, int]],
    ) -> dict[FlowKey, list[Exception]]:
        """Write the record and the ``pages`` of counts (by path) of each flow in one transaction. Returns each flow's
        failures: a node does not have the version that was read (``records``), or the request is too large.
        """
        known = self._known({path: page for some in pages.values() for path, page in some.items()})

        def writing(flow: FlowKey, stored: StoredFlow) -> Fill:
            path, data, version = self._path(flow), flow_to_json(stored), records[flow][1]

            def fill(transaction: Any) -> None:
                transaction.set_data(path, data, version)
                _write_pages(transaction, pages.get(flow, {}), known)

            return fill

        fills = (writing(flow, stored) for flow, stored in changes.items())
        results = dict(zip(changes, self._client.transact_grouped("store datamarkers", fills), strict=True))
        for flow, failures in results.items():
            if not failures:
                self._wrote(flow, records[flow][1])
        return results

    def _known(self, pages: Mapping[str, bytes]) -> set[str]:
        """The pages that exist already. The folders of the other pages are made."""
        asked = self._client.ask_all("look for delivery counts", map(_looking, pages))
        known = {path for path, answer in zip(pages, asked, strict=True) if answer() is not None}
        self._client.make({path.rpartition("/")[0] for path, page in pages.items() if page and path not in known})
        return known

    def _write(self, flow: FlowKey, stored: StoredFlow, what: str, fill: Fill) -> list[Exception]:
        """Run one transaction that writes the record ``stored``. Returns as :meth:`GuardedClient.transact`."""
        try:
            return self._client.transact(what, fill)
        except TooLargeError as error:
            raise too_large(flow, stored, error.size) from error

    def _change(self, flow: FlowKey, change: Callable[[StoredFlow], StoredFlow]) -> StoredFlow:
        path = self._path(flow)
        with self._writing:
            for race in range(RACES):
                _step_aside(race)
                stored, version = self._get(flow, to_write=True)
                changed = change(stored)
                data = flow_to_json(changed)
                failures = self._write(flow, changed, f"write {path}", setting(path, data, version))
                if not failures:
                    self._wrote(flow, version)
                    return changed
                if has(failures, NoNodeError):
                    raise KeyError(flow)
        raise self._client.too_many_races(path)

    def _registered(self, flow: FlowKey, wanted: StoredFlow) -> StoredFlow:
        """The stored record of the flow. An unreadable record is replaced by ``wanted``, which is held."""
        path = self._path(flow)
        for race in range(RACES):
            _step_aside(race)
            try:
                return self._get(flow)[0]
            except MarkerStoreError as error:
                if error.flow is None:
                    raise
                _, stat = self._client.ask(f"read {path}", getting(path))
                version = int(stat.version)
                anew = in_place_of(error, wanted.marker, max(wanted.epoch, version), wanted.start)
                if not self._write(flow, anew, f"write {path}", setting(path, flow_to_json(anew), version)):
                    return anew
        raise self._client.too_many_races(path)

    def _get(self, flow: FlowKey, *, to_write: bool = False) -> tuple[StoredFlow, int]:
        path = self._path(flow)
        try:
            data, stat = self._client.ask(f"read {path}", getting(path))
        except NoNodeError:
            raise KeyError(flow) from None
        if to_write:
            self._check_version(flow, path, stat)
        return flow_from_json(flow, bytes(data), path), int(stat.version)

    def _get_all(self, flows: Iterable[FlowKey], *, to_write: bool = False) -> dict[FlowKey, tuple[StoredFlow, int]]:
        """The existing, valid records of ``flows``, with their versions. All are read in one round trip. ``to_write``:
        whether the calling thread writes them next.
        """
        wanted = {flow: self._path(flow) for flow in flows}
        asked = self._client.ask_all("read datamarkers", map(getting, wanted.values()))
        found: dict[FlowKey, tuple[StoredFlow, int]] = {}
        for (flow, path), answer in zip(wanted.items(), asked, strict=True):
            with contextlib.suppress(NoNodeError):
                data, stat = answer()
                if to_write:
                    self._check_version(flow, path, stat)
                try:
                    found[flow] = flow_from_json(flow, bytes(data), path), int(stat.version)
                except MarkerStoreError as error:  # only this flow is skipped; the others are read
                    _log.error("%s", error)
        return found

    def _beside(self, flow: FlowKey, check: Callable[[StoredFlow], None], what: str, fill: Fill) -> bool:
        """See :class:`~publisher.stores.dead_letters.zookeeper.BesideRecord`."""
        with self._writing:
            stored, version = self._get(flow, to_write=True)
            check(stored)
            write = setting(self._path(flow), flow_to_json(stored), version)

            def both(transaction: Any) -> None:
                write(transaction)
                fill(transaction)

            done = not self._client.transact(what, both)
            if done:
                self._wrote(flow, version)
            return done

    def _check_version(self, flow: FlowKey, path: str, stat: Any) -> None:
        """Raise :class:`~wormhole.model.errors.CoordinationLost` if the record is older than before. The owner of the
        log would otherwise continue from its newer state in memory and skip updates.
        """
        made, version = int(stat.czxid), int(stat.version)
        known = self._versions.get(flow, (made, version))
        if known[0] == made and version < known[1]:
            raise self._client.refuse_older(f"{path} is in version {version}, and was in {known[1]}")
        self._versions[flow] = made, version

    def _wrote(self, flow: FlowKey, version: int) -> None:
        """Note that this process replaced the record that had ``version``."""
        self._versions[flow] = self._versions[flow][0], version + 1

    def _path(self, flow: FlowKey) -> str:
        return self._paths.marker(*flow)


def _listing(path: str) -> Ask:
    return lambda client: client.get_children_async(path)


def _looking(path: str) -> Ask:
    return lambda client: client.exists_async(path)


def _write_pages(transaction: Any, pages: Mapping[str, bytes], known: Collection[str]) -> None:
    for path, page in pages.items():
        if page and path in known:
            transaction.set_data(path, page)
        elif page:
            transaction.create(path, page)
        elif path in known:
            transaction.delete(path)


def _too_large(
    flow: FlowKey, stored: StoredFlow, failures: Sequence[Exception], counts: int = 0
) -> MarkerStoreError | None:
    """The error for a flow whose record is too large; ``None`` if the failures have another cause. ``counts``: bytes of
    its delivery counts."""
    sizes = [failure.size for failure in failures if isinstance(failure, TooLargeError)]
    return too_large(flow, stored, sizes[0], counts) if sizes else None


def _names(flows: Iterable[FlowKey]) -> str:
    return ", ".join(sorted({flow_name(*flow) for flow in flows}))


def _step_aside(race: int) -> None:
    """Wait before another try. The time grows with the lost races, with jitter so that two writers do not stay in
    step."""
    if race:
        SYSTEM_CLOCK.pause(random.uniform(0, 0.005 * race))
