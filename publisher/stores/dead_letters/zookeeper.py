"""Parked updates in ZooKeeper: a node per letter, its bytes in one below it.

A letter is created in a transaction that also checks the version of the flow's record, so that a former owner adds
nothing. ZooKeeper holds everything in memory and takes no request over 1 MB: both bounds here are smaller than those of
the other stores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, unquote

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency

from publisher.stores.dead_letters.rules import check_epoch, letter_from_json, letter_to_json
from wormhole.coordination.records import Paths
from wormhole.model.errors import MarkerStoreError
from wormhole.model.position import flow_name
from wormhole.ports.dead_letters import DeadLetter, Parcel, in_order
from wormhole.ports.marker_store import FlowKey, StoredFlow

__all__ = ["ZooKeeperDeadLetters"]

_RACES: Final = 20
_PARCEL: Final = "parcel"


class ZooKeeperDeadLetters:
    """The ZooKeeper form of the port.

    ``ask`` and ``record``: the marker store's, to ask the client and to read a flow with its version.
    """

    largest = 900_000
    most_bytes = 8 << 20

    def __init__(
        self,
        paths: Paths,
        ask: Callable[[str, Callable[[Any], Any]], Any],
        record: Callable[[FlowKey], tuple[StoredFlow, int]],
    ) -> None:
        self._paths = paths
        self._ask = ask
        self._record = record

    def load(self, flow: FlowKey) -> tuple[DeadLetter, ...]:
        letters = []
        for id_ in self._ids(flow):
            with contextlib.suppress(NoNodeError):  # deleted since it was listed
                letters.append(self._get(flow, id_)[0])
        return in_order(letters)

    def parked(self, flows: Collection[FlowKey]) -> Collection[FlowKey]:
        found = set()
        for application in sorted({application for application, _ in flows}):
            found |= {(application, shard) for shard in self._children(self._applications_folder(application))}
        return found & {*flows}

    def read(self, flow: FlowKey, id_: str) -> Parcel:
        path = f"{self._path(flow, id_)}/{_PARCEL}"
        try:
            data, _ = self._ask(f"read {path}", lambda client: client.get_async(path))
        except NoNodeError:
            raise KeyError(id_) from None
        return _parcel_from_bytes(bytes(data))

    def park(self, flow: FlowKey, epoch: int, letter: DeadLetter, parcel: Parcel) -> None:
        path, data, record = self._path(flow, letter.id), _parcel_to_bytes(parcel), letter_to_json(letter).encode()
        folder = self._folder(flow)
        for _ in range(_RACES):
            version = self._checked(flow, epoch)
            known = self._exists(path)

            def put(transaction: Any, known: bool = known) -> None:
                if known:
                    transaction.set_data(path, record)
                    transaction.set_data(f"{path}/{_PARCEL}", data)
                else:
                    transaction.create(path, record)
                    transaction.create(f"{path}/{_PARCEL}", data)

            if not known:
                with contextlib.suppress(NodeExistsError):
                    self._ask(f"create {folder}", lambda client: client.create_async(folder, b"", makepath=True))
            if self._commit(flow, version, put):
                return
        raise self._too_many_races(path)

    def retry(self, flow: FlowKey, ids: Sequence[str]) -> None:
        for id_ in ids:
            path = self._path(flow, id_)
            for _ in range(_RACES):
                try:
                    letter, version = self._get(flow, id_)
                    data = letter_to_json(replace(letter, retrying=True)).encode()
                    self._ask(f"write {path}", _setting(path, data, version))
                except BadVersionError:
                    continue
                except NoNodeError:
                    pass
                break
            else:
                raise self._too_many_races(path)

    def remove(self, flow: FlowKey, ids: Sequence[str], epoch: int | None = None) -> None:
        for id_ in ids:
            path = self._path(flow, id_)

            def delete(transaction: Any, path: str = path) -> None:
                transaction.delete(f"{path}/{_PARCEL}")
                transaction.delete(path)

            for _ in range(_RACES):
                version = None if epoch is None else self._checked(flow, epoch)
                if not self._exists(path) or self._commit(flow, version, delete):
                    break
            else:
                raise self._too_many_races(path)

    def forget(self, flow: FlowKey) -> None:
        self.remove(flow, self._ids(flow))
        folder = self._folder(flow)
        with contextlib.suppress(NoNodeError):
            self._ask(f"delete {folder}", lambda client: client.delete_async(folder))

    # --- inside ------------------------------------------------------------------------------------------------

    def _checked(self, flow: FlowKey, epoch: int) -> int:
        """The version of the flow's record, which has to be of ``epoch``."""
        try:
            stored, version = self._record(flow)
        except KeyError:
            check_epoch(flow, epoch, None)
            raise
        check_epoch(flow, epoch, stored.epoch)
        return version

    def _commit(self, flow: FlowKey, version: int | None, fill: Callable[[Any], None]) -> bool:
        """One transaction; false when something changed since it was read."""

        def ask(client: Any) -> Any:
            transaction = client.transaction()
            if version is not None:
                transaction.check(self._paths.marker(*flow), version)
            fill(transaction)
            return transaction.commit_async()

        what = f"change the parked updates of {flow_name(*flow)}"
        failures = [result for result in self._ask(what, ask) if isinstance(result, Exception)]
        for failure in failures:
            if not isinstance(
                failure, (BadVersionError, NoNodeError, NodeExistsError, RolledBackError, RuntimeInconsistency)
            ):
                raise MarkerStoreError(
                    f"ZooKeeper refuses to {what}: {type(failure).__name__} {failure}".rstrip(),
                    hint="give the publisher the credentials of the identity `publisher` (coordinator.auth_file)",
                ) from failure
        return not failures

    def _get(self, flow: FlowKey, id_: str) -> tuple[DeadLetter, int]:
        path = self._path(flow, id_)
        data, stat = self._ask(f"read {path}", lambda client: client.get_async(path))
        return letter_from_json(flow, bytes(data), path), int(stat.version)

    def _exists(self, path: str) -> bool:
        return self._ask(f"look for {path}", lambda client: client.exists_async(path)) is not None

    def _ids(self, flow: FlowKey) -> list[str]:
        return sorted(map(unquote, self._children(self._folder(flow))))

    def _children(self, path: str) -> list[str]:
        try:
            return list(self._ask(f"list {path}", lambda client: client.get_children_async(path)))
        except NoNodeError:
            return []

    def _folder(self, flow: FlowKey) -> str:
        application, shard = flow
        return f"{self._applications_folder(application)}/{shard}"

    def _applications_folder(self, application: str) -> str:
        return f"{self._paths.application(application)}/dead_letters"

    def _path(self, flow: FlowKey, id_: str) -> str:
        return f"{self._folder(flow)}/{quote(id_, safe=':')}"

    def _too_many_races(self, path: str) -> MarkerStoreError:
        return MarkerStoreError(
            f"somebody else keeps writing what {path} depends on in ZooKeeper",
            hint="two publishers serve the same log with the same epoch: end one of them",
        )


def _setting(path: str, data: bytes, version: int) -> Callable[[Any], Any]:
    return lambda client: client.set_async(path, data, version)


def _parcel_to_bytes(parcel: Parcel) -> bytes:
    return len(parcel.schema).to_bytes(4, "big") + parcel.schema + parcel.body


def _parcel_from_bytes(data: bytes) -> Parcel:
    end = 4 + int.from_bytes(data[:4], "big")
    return Parcel(data[4:end], data[end:])
