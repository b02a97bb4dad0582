"""What a source knows of the servers behind its log, in ZooKeeper: for each host that may come to own the log.

A document is one node, compressed. Only the owner of the log writes it (:mod:`publisher.stores.guarded_client`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from publisher.stores.guarded_client import RACES, Fill, GuardedClient
from wormhole.coordination.port import LogGroup
from wormhole.coordination.records import Paths
from wormhole.model.errors import ConfigError, MarkerStoreError, UsageError
from wormhole.model.json_input import read_json
from wormhole.ports.source_state import SourceState

__all__ = ["CopiedState", "InheritedState", "ZooKeeperSourceState"]

_MOST_STORED: Final = 900_000
"""Bytes of a node: ZooKeeper takes no request over 1 MB."""
_MOST_READ: Final = 16 << 20
"""Bytes of the JSON in a node: what somebody else put there does not fill the memory."""


class ZooKeeperSourceState:
    """The ZooKeeper form of :class:`~wormhole.ports.source_state.SourceState`. ``client``: the marker store's."""

    def __init__(self, paths: Paths, group: LogGroup, client: GuardedClient) -> None:
        self._paths = paths
        self._group = group
        self._client = client

    def __str__(self) -> str:
        return f"ZooKeeper, for {self._group}"

    def read(self, name: str) -> dict[str, Any]:
        """The document as it was last written; empty where there is none.

        Raises :class:`~wormhole.model.errors.CoordinationLost`, and :class:`~wormhole.model.errors.MarkerStoreError`
        for one that is damaged.
        """
        path = self._paths.log_state(self._group, name)
        self._client.catch_up()
        try:
            data, _ = self._client.ask(f"read {path}", lambda client: client.get_async(path))
        except NoNodeError:
            return {}
        try:
            return _unpacked(bytes(data))
        except ValueError as error:
            raise MarkerStoreError(
                f"{path} holds nothing that a publisher wrote: {error}",
                hint="restore ZooKeeper from a backup, or delete the node: the source then finds out anew which server "
                "it reads, as with a state folder that was lost",
            ) from error

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Replace the document. It is durable when this returns.

        Raises :class:`~wormhole.model.errors.CoordinationLost`, also when this publisher's claim on the log is gone,
        :class:`~wormhole.model.errors.MarkerStoreError` for a refusal, and
        :class:`~wormhole.model.errors.ConfigError` for a document that is too large.
        """
        path = self._paths.log_state(self._group, name)
        data = _packed(path, content)
        what = f"write {path}"
        for _ in range(RACES):
            if not self._client.transact(what, _setting(path, data)):
                return
            self._client.make([path.rpartition("/")[0]])
            if not self._client.transact(what, _creating(path, data)):
                return
        raise self._client.too_many_races(path)


class InheritedState:
    """A state that begins with what an earlier one holds: of the first of ``earlier`` that has documents. Only
    ``present`` is written.

    A log that gets a failover was served by one of its copies before, and the datamarkers are of its histories.
    """

    def __init__(self, present: SourceState, earlier: Sequence[SourceState]) -> None:
        self._present = present
        self._earlier = earlier

    def __str__(self) -> str:
        return str(self._present)

    def read(self, name: str) -> dict[str, Any]:
        """See the port."""
        found = self._present.read(name)
        return found or next(filter(None, (one.read(name) for one in self._earlier)), {})

    def write(self, name: str, content: dict[str, Any]) -> None:
        """See the port."""
        self._present.write(name, content)


@dataclass(frozen=True, slots=True)
class CopiedState:
    """Documents as they were when somebody read them, for processes that only read and do not reach ZooKeeper."""

    documents: Mapping[str, dict[str, Any]]

    def __str__(self) -> str:
        return "a copy of what is in ZooKeeper"

    def read(self, name: str) -> dict[str, Any]:
        """See the port."""
        return self.documents.get(name, {})

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Raises :class:`~wormhole.model.errors.UsageError`."""
        raise UsageError(f"{name} cannot be written: this is {self}", hint="report this as a bug")


def _packed(path: str, content: dict[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    data = zlib.compress(text)
    if len(data) > _MOST_STORED or len(text) > _MOST_READ:
        raise ConfigError(
            f"{path}: what the source knows of its servers takes {len(data):,} bytes ({len(text):,} before it is "
            f"compressed); a node of ZooKeeper holds {_MOST_STORED:,} at most",
            hint='use publisher.markers = "local" for this log, on one host, and report this as a bug',
        )
    return data


def _unpacked(data: bytes) -> dict[str, Any]:
    """Inverse of :func:`_packed`. Raises ``ValueError``."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(data, _MOST_READ)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError(f"it is cut off, has something behind its end, or has more than {_MOST_READ:,} bytes")
    content = read_json(text)
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    return content


def _setting(path: str, data: bytes) -> Fill:
    return lambda transaction: transaction.set_data(path, data)


def _creating(path: str, data: bytes) -> Fill:
    return lambda transaction: transaction.create(path, data)
