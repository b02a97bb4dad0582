"""A source's documents about the servers behind its log, in ZooKeeper. The hosts that may own the log share them.

A document is a node with compressed JSON. Only the log's owner writes it (:mod:`publisher.stores.guarded_client`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kazoo.exceptions import NoNodeError

from publisher.stores.guarded_client import RACES, GuardedClient, creating, getting, setting
from wormhole.coordination.port import LogGroup
from wormhole.coordination.records import Paths
from wormhole.model.errors import ConfigError, MarkerStoreError, UsageError
from wormhole.model.json_input import read_json
from wormhole.ports.source_state import HISTORIES, SourceState

__all__ = ["CopiedState", "GroupState", "InheritedState", "ZooKeeperSourceState", "copies_of"]

_log = logging.getLogger(__name__)

_TURN: Final = "turn"
"""The document that records when its group served the log."""
_READ: Final = "read"
"""The names of the sources' documents. Within one group, an incarnation's number has the same meaning in all of them.
"""

_MOST_STORED: Final = 900_000
"""The most bytes of a node: ZooKeeper refuses requests over 1 MB."""
_MOST_READ: Final = 16 << 20
"""The most bytes of the JSON in a node, so that a node of another process does not fill the memory."""


class ZooKeeperSourceState:
    """The ZooKeeper form of :class:`~wormhole.ports.source_state.SourceState`. ``client``: that of the marker store."""

    def __init__(self, paths: Paths, group: LogGroup, client: GuardedClient) -> None:
        self._paths = paths
        self._group = group
        self._client = client

    def __str__(self) -> str:
        return f"ZooKeeper, for {self._group}"

    def read(self, name: str) -> dict[str, Any]:
        """The last written content of the document; empty if it was never written.

        Raises :class:`~wormhole.model.errors.CoordinationLost`, and :class:`~wormhole.model.errors.MarkerStoreError`
        for a damaged document.
        """
        path = self._paths.log_state(self._group, name)
        self._client.catch_up()
        try:
            data, _ = self._client.ask(f"read {path}", getting(path))
        except NoNodeError:
            return {}
        try:
            return _unpacked(bytes(data))
        except ValueError as error:
            raise MarkerStoreError(
                f"{path} holds nothing that a publisher wrote: {error}",
                hint="restore ZooKeeper from a backup, or delete the node: the source then finds out anew which server "
                "it reads, as with a state folder that was lost",
                code="record-invalid",
            ) from error

    def names(self) -> Collection[str]:
        """The names of the stored documents. Raises :class:`~wormhole.model.errors.CoordinationLost`."""
        self._client.catch_up()
        return self._client.children(self._paths.log_state(self._group, HISTORIES).rpartition("/")[0])

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Replace the document's content durably.

        Raises :class:`~wormhole.model.errors.CoordinationLost`, also when this publisher's claim on the log is gone,
        :class:`~wormhole.model.errors.MarkerStoreError` for a refusal, and
        :class:`~wormhole.model.errors.ConfigError` for a document that is too large.
        """
        path = self._paths.log_state(self._group, name)
        data = _packed(path, content)
        what = f"write {path}"
        for _ in range(RACES):
            if not self._client.transact(what, setting(path, data)):
                return
            self._client.make([path.rpartition("/")[0]])
            if not self._client.transact(what, creating(path, data)):
                return
        raise self._client.too_many_races(path)


class GroupState(SourceState, Protocol):
    """The documents of one group."""

    def names(self) -> Collection[str]:
        """The names of the stored documents. Raises the errors of :meth:`read`."""
        ...


@dataclass(frozen=True, slots=True)
class _Turn:
    """A group's turn of serving the log. ``number``: the group with the highest number served last; 0: not known.
    ``copies``: the copies of the log that the group served; empty: not known.
    """

    number: int = 0
    copies: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Group:
    """A group's state when the log is opened. ``reaches``: the highest incarnation in its histories."""

    state: GroupState
    turn: _Turn
    histories: dict[str, Any]
    reaches: int

    @property
    def last_served(self) -> tuple[int, int, bool]:
        """The sort key for groups. The datamarkers refer to the histories of the group with the highest key."""
        return self.turn.number, self.reaches, bool(self.histories)


class InheritedState:
    """The documents of the group ``present``. They continue the documents of the group that served the log last.

    When a failover is configured for a log, or removed, the log's datamarkers refer to the histories of another group.
    The first read happens when the owner opens the log. It copies all documents of that group to ``present`` and
    removes other documents there. All other operations use only ``present``. So only the log's owner may read here.

    An owner that serves applications records the next *turn* for its group, which shows the group that served last.
    Among groups with the same turn, the last one is the group with the highest incarnation in its histories.
    ``earlier``: the other groups. A group that served none of ``copies``, the copies of this log, is ignored.
    ``serves``: whether the owner serves applications now. If it serves none, no datamarker refers to its histories.
    """

    def __init__(
        self,
        present: GroupState,
        earlier: Sequence[GroupState],
        copies: Collection[str],
        serves: Callable[[], bool] = lambda: True,
    ) -> None:
        self._present = present
        self._earlier = earlier
        self._copies = frozenset(copies)
        self._serves = serves
        self._opening = threading.Lock()
        self._opened = False
        self._noted, self._taken, self._next = _Turn(), 0, 1

    def __str__(self) -> str:
        return str(self._present)

    def read(self, name: str) -> dict[str, Any]:
        """See the port."""
        self._open()
        return self._present.read(name)

    def write(self, name: str, content: dict[str, Any]) -> None:
        """See the port."""
        self._open()
        self._present.write(name, content)

    def _open(self) -> None:
        with self._opening:
            if not self._opened:
                self._decide()
                self._opened = True
            self._note()

    def _decide(self) -> None:
        present = _look(self._present)
        others = [one for one in map(_look, self._earlier) if one.histories and self._may_be_ours(one.turn)]
        last = max([present, *others], key=lambda one: one.last_served)
        if last is not present:
            self._take_over(last)
        self._noted, self._taken = present.turn, last.turn.number
        self._next = max((one.turn.number for one in others), default=0) + 1

    def _note(self) -> None:
        turn = _Turn(max(self._taken, self._next) if self._serves() else self._taken, self._copies)
        if turn.number >= self._noted.number and turn != self._noted:
            self._present.write(_TURN, {"number": turn.number, "copies": sorted(turn.copies)})
            self._noted = turn

    def _may_be_ours(self, turn: _Turn) -> bool:
        return not turn.copies or not turn.copies.isdisjoint(self._copies)

    def _take_over(self, last: _Group) -> None:
        """Copy the documents of the group ``last``. An interrupted copy is repeated, because the histories and the turn
        are written last."""
        _log.warning(
            "what is known of the log's servers in %s is taken over into %s: that served the log last. Next: nothing",
            last.state,
            self._present,
        )
        names = {*last.state.names(), *self._present.names()} - {HISTORIES, _TURN}
        for name in sorted(names):
            content = last.state.read(name)
            if name == _READ and len(self._copies) == 1:
                content = self._of_this_branch(content)
            self._present.write(name, content)
        self._present.write(HISTORIES, last.histories)

    def _of_this_branch(self, read: dict[str, Any]) -> dict[str, Any]:
        """The histories, renamed for this copy. After a failover is removed, each of its copies continues the histories
        with its own log, although incarnations of different copies have the same numbers. The new name is
        deterministic.
        """
        if "id" not in read:
            return read
        (copy,) = self._copies
        return {**read, "id": hashlib.sha256(f"{read['id']}/{copy}".encode()).hexdigest()[:16]}


def copies_of(state: SourceState) -> Collection[str]:
    """The copies whose log the group of ``state`` served last; empty if it never opened the log. Raises the errors of
    the port.
    """
    return _turn(state).copies


def _look(state: GroupState) -> _Group:
    histories = state.read(HISTORIES)
    listed = histories.get("incarnations")
    numbers = [one.get("number") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return _Group(
        state, _turn(state), histories, max((number for number in numbers if isinstance(number, int)), default=0)
    )


def _turn(state: SourceState) -> _Turn:
    noted = state.read(_TURN)
    number, copies = noted.get("number"), noted.get("copies")
    return _Turn(
        number if isinstance(number, int) else 0,
        frozenset(map(str, copies)) if isinstance(copies, list) else frozenset(),
    )


@dataclass(frozen=True, slots=True)
class CopiedState:
    """A read-only copy of documents, for processes that do not reach ZooKeeper."""

    documents: Mapping[str, dict[str, Any]]

    def __str__(self) -> str:
        return "a copy of what is in ZooKeeper"

    def read(self, name: str) -> dict[str, Any]:
        """See the port."""
        return self.documents.get(name, {})

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Raises :class:`~wormhole.model.errors.UsageError`."""
        raise UsageError(
            f"{name} cannot be written: this is {self}", hint="report this as a bug", code="internal-error"
        )


def _packed(path: str, content: dict[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    data = zlib.compress(text)
    if len(data) > _MOST_STORED or len(text) > _MOST_READ:
        raise ConfigError(
            f"{path}: what the source knows of its servers takes {len(data):,} bytes ({len(text):,} before it is "
            f"compressed); a node of ZooKeeper holds {_MOST_STORED:,} at most",
            hint='use publisher.markers = "local" for this log, on one host, and report this as a bug',
            code="record-too-large",
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
