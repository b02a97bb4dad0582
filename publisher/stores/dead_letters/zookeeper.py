"""Parked updates in ZooKeeper. Each letter is a node, with its bytes in a node below it.

The transaction that creates a letter also rewrites the flow's record, unchanged, if the record still has the version
that was read. So a former owner of the flow cannot add letters. A ZooKeeper that was restored to a state before the
letter also has an older version of the record.

ZooKeeper holds all data in memory and refuses requests over 1 MB, so its limits are smaller than those of other stores.
A letter within the limits may be refused if the keys of its rows are large.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

from kazoo.exceptions import NoNodeError

from publisher.stores.dead_letters.rules import check_epoch, letter_from_json, letter_to_json
from publisher.stores.guarded_client import (
    MOST_BYTES,
    RACES,
    Fill,
    GuardedClient,
    TooLargeError,
    deleting,
    getting,
    setting,
)
from wormhole.coordination.records import Paths
from wormhole.model.errors import MarkerStoreError
from wormhole.model.position import flow_name
from wormhole.ports.dead_letters import DeadLetter, Parcel, in_order, marked
from wormhole.ports.marker_store import FlowKey, StoredFlow

__all__ = ["ZooKeeperDeadLetters"]

_PARCEL: Final = "parcel"


class BesideRecord(Protocol):
    """Runs a transaction that rewrites the flow's record unchanged and contains the operations of ``fill``. Returns
    false if another process wrote the record meanwhile. ``check``: called with the record first; may raise. Raises
    ``KeyError`` without a record.
    """

    def __call__(self, flow: FlowKey, check: Callable[[StoredFlow], None], what: str, fill: Fill) -> bool: ...


class ZooKeeperDeadLetters:
    """The ZooKeeper form of the port.

    ``client``: the client of the marker store. ``beside``: the marker store's :class:`BesideRecord`.
    """

    largest = 900_000
    most_bytes = 8 << 20

    def __init__(
        self,
        paths: Paths,
        client: GuardedClient,
        beside: BesideRecord,
    ) -> None:
        self._paths = paths
        self._client = client
        self._beside = beside

    def load(self, flow: FlowKey) -> tuple[DeadLetter, ...]:
        letters = []
        for id_ in self._ids(flow):
            with contextlib.suppress(NoNodeError):  # the letter was deleted since it was listed
                letters.append(self._get(flow, id_)[0])
        return in_order(letters)

    def parked(self, flows: Collection[FlowKey]) -> Collection[FlowKey]:
        found = set()
        for application in sorted({application for application, _ in flows}):
            found |= {(application, shard) for shard in self._client.children(self._applications_folder(application))}
        return found & {*flows}

    def read(self, flow: FlowKey, id_: str) -> Parcel:
        path = f"{self._path(flow, id_)}/{_PARCEL}"
        try:
            data, _ = self._client.ask(f"read {path}", getting(path))
        except NoNodeError:
            raise KeyError(id_) from None
        return _parcel_from_bytes(bytes(data))

    def park(self, flow: FlowKey, epoch: int, letter: DeadLetter, parcel: Parcel) -> None:
        path, data, record = self._path(flow, letter.id), _parcel_to_bytes(parcel), letter_to_json(letter).encode()
        folder = self._folder(flow)
        for _ in range(RACES):
            known = self._exists(path)

            def put(transaction: Any, known: bool = known) -> None:
                if known:
                    transaction.set_data(path, record)
                    transaction.set_data(f"{path}/{_PARCEL}", data)
                else:
                    transaction.create(path, record)
                    transaction.create(f"{path}/{_PARCEL}", data)

            if not known:
                self._client.make([folder])
            try:
                if self._commit(flow, epoch, put):
                    return
            except TooLargeError as error:
                raise _too_large(flow, letter, error.size) from error
        raise self._client.too_many_races(f"what {path} depends on")

    def retry(self, flow: FlowKey, ids: Sequence[str], *, anyone: bool = False) -> None:
        for id_ in ids:
            path = self._path(flow, id_)
            for _ in range(RACES):
                try:
                    letter, version = self._get(flow, id_)
                except NoNodeError:  # deleted meanwhile
                    break
                data = letter_to_json(marked(letter, anyone=anyone)).encode()
                if not self._client.transact(f"write {path}", setting(path, data, version)):
                    break
            else:
                raise self._client.too_many_races(f"what {path} depends on")

    def remove(self, flow: FlowKey, ids: Sequence[str], epoch: int | None = None) -> None:
        for id_ in ids:
            path = self._path(flow, id_)

            def delete(transaction: Any, path: str = path) -> None:
                transaction.delete(f"{path}/{_PARCEL}")
                transaction.delete(path)

            for _ in range(RACES):
                if not self._exists(path) or self._commit(flow, epoch, delete):
                    break
            else:
                raise self._client.too_many_races(f"what {path} depends on")

    def forget(self, flow: FlowKey) -> None:
        self.remove(flow, self._ids(flow))
        folder = self._folder(flow)
        self._client.transact(f"delete {folder}", deleting(folder))

    # --- inside ------------------------------------------------------------------------------------------------

    def _commit(self, flow: FlowKey, epoch: int | None, fill: Fill) -> bool:
        """Run one transaction for a flow that has to be in ``epoch`` (``None``: any epoch). Returns false if the record
        changed since it was read.
        """
        what = f"change the parked updates of {flow_name(*flow)}"
        if epoch is None:
            return not self._client.transact(what, fill)
        try:
            return self._beside(flow, lambda stored: check_epoch(flow, epoch, stored.epoch), what, fill)
        except KeyError:
            check_epoch(flow, epoch, None)
            raise

    def _get(self, flow: FlowKey, id_: str) -> tuple[DeadLetter, int]:
        path = self._path(flow, id_)
        data, stat = self._client.ask(f"read {path}", getting(path))
        return letter_from_json(flow, bytes(data), path), int(stat.version)

    def _exists(self, path: str) -> bool:
        return self._client.ask(f"look for {path}", lambda client: client.exists_async(path)) is not None

    def _ids(self, flow: FlowKey) -> list[str]:
        return sorted(map(unquote, self._client.children(self._folder(flow))))

    def _folder(self, flow: FlowKey) -> str:
        application, shard = flow
        return f"{self._applications_folder(application)}/{shard}"

    def _applications_folder(self, application: str) -> str:
        return f"{self._paths.application(application)}/dead_letters"

    def _path(self, flow: FlowKey, id_: str) -> str:
        return f"{self._folder(flow)}/{quote(id_, safe=':')}"


def _too_large(flow: FlowKey, letter: DeadLetter, size: int) -> MarkerStoreError:
    name = flow_name(*flow)
    return MarkerStoreError(
        f"update {letter.id} is too large to be parked: with its key the request has {size:,} bytes, and ZooKeeper "
        f"takes {MOST_BYTES:,} at most",
        flow=name,
        hint=f"`wormholectl flows skip {name} --update {letter.id}` passes over it",
        code="record-too-large",
    )


def _parcel_to_bytes(parcel: Parcel) -> bytes:
    return len(parcel.schema).to_bytes(4, "big") + parcel.schema + parcel.body


def _parcel_from_bytes(data: bytes) -> Parcel:
    end = 4 + int.from_bytes(data[:4], "big")
    return Parcel(data[4:end], data[end:])
