"""Keeps the incarnations of a log for later starts. An incarnation is one history of one server.

A place (file, offset) has a meaning only in one history of one server. Another history begins when the URL leads to
another server (failover, restore), or when the server began its log again (``RESET MASTER``, a restored copy). The
files show the second case: the log's end is lower than before, a known file has changed, or no known file exists any
more. The newest known file that still exists decides whether the log is the same
(`datastores.mysql.history.continuity`).

A file's fingerprint has the time and the server of its beginning (from its format description) and the GTIDs that were
logged before it (from the list that follows). The stored state is small, because hosts may share it. For each server
only the newest incarnation has fingerprints. For a server that is not the present one, only its newest files have them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from datastores.common.high_water import HighWater
from datastores.common.kept_state import keep, load_incarnations
from datastores.common.next_steps import REPAIR
from datastores.mysql.history.confirmation import Believe
from datastores.mysql.server.state import ServerState
from wormhole.model.errors import Diverged, SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.source_state import HISTORIES, SourceState

__all__ = ["GONE", "Incarnations", "Known", "Lost", "same_file"]

_FINGERPRINTS: Final = 1024
_FINGERPRINTS_OF_OTHERS: Final = 16
_INCARNATIONS: Final = 256
_MOST_BYTES: Final = 768 << 10  # the most bytes of the stored state; a node of ZooKeeper holds 1 MiB
_ACCEPT: Final = f"find out whether the server was restored from a backup. If it was: {REPAIR}"
GONE: Final = (
    "look in the application's data for changes of these transactions and take them back, then "
    "`wormholectl flows accept-loss APP/SHARD`: it goes on behind its datamarker, with what the server has"
)
"""The next step for a flow if the log lacks changes that were delivered after its datamarker."""


def _believe(what: str) -> None:
    """Accept a conclusion at once, without confirmation."""


@dataclass(frozen=True, slots=True)
class Known:
    """The stored facts about a server. ``files``: fingerprints by number. ``current``: the server is the present
    one."""

    files: Mapping[int, str]
    current: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """``why``: why a server's log is not the known one. ``unproven``: it may be the same, but there is no proof.
    ``shared``: the place up to which it is the same. Log that was read after this place is gone."""

    why: str
    unproven: bool = False
    shared: LogPosition | None = None


_ANEW: Final = Lost("the server began its log anew: RESET MASTER, or a restored copy")


class Incarnations:
    """The incarnations. Thread-safe. A change is stored before a caller gets a place of the new incarnation. Reads do
    not wait for the write.

    ``state``: stores the incarnations. ``high_water``: how far the log was read, which is stored for each ended
    incarnation. ``believe`` (see `datastores.mysql.history.confirmation`) is called before another history begins. A
    method that cannot store its change raises :class:`SourceUnavailable` or another transient error of the state, and
    then changes nothing.
    """

    def __init__(self, state: SourceState, high_water: HighWater | None = None) -> None:
        """Raises :class:`SourceUnavailable` if the stored state cannot be read."""
        self._state = state
        self._high_water = high_water
        self._lock = threading.Lock()  # one change at a time
        # Oldest first. The tuple is replaced, never changed.
        self._known = load_incarnations(state, server=str, highest=int, reset=bool, files=dict)

    @property
    def current(self) -> int:
        """The number of the last known incarnation; 0: none is known."""
        return self.reached.incarnation

    @property
    def reached(self) -> LogPosition:
        """The beginning of the highest known file in the current incarnation; zeros: no file is known."""
        known = self._known
        last = known[-1] if known else {"number": 0, "highest": 0}
        return LogPosition(int(last["number"]), int(last["highest"]), 0)

    def known(self, server: str) -> Known | None:
        """The stored facts about a server's present log; ``None``: no facts are known."""
        known = self._known
        one = _last_of(known, server)
        if one is None:
            return None
        return Known({int(number): file for number, file in one["files"].items()}, one is known[-1])

    def observe(
        self, view: ServerState, since: LogPosition | None = None, lost: Lost | None = None, believe: Believe = _believe
    ) -> int:
        """The incarnation of the server's log in this view. Begins a new one if the history changed.

        ``since``: how far the log was known before the server was queried, at least `reached`; a log that ends before
        it began again. ``None``: no reader has read log after the query. ``lost``: why the server's log is not
        the known one (see `datastores.mysql.history.continuity`).
        """
        highest = view.end[0]
        with self._lock:
            since = since or self.reached
            last = self._known[-1] if self._known else None
            if last is None:
                self._begin(view.identity, highest, None, state=view.state)
            elif last["server"] != view.identity:
                believe(f"the server is {view.identity}, no longer {last['server']}")
                before = _last_of(self._known, view.identity)
                fell = before is not None and highest < before["highest"]
                self._begin(view.identity, highest, lost or (_ANEW if fell else None), state=view.state)
            elif view.end < (since.file, since.offset) and since.incarnation == last["number"]:
                believe(f"the log of {view.identity} ends before {since}")
                self._begin(view.identity, highest, _ANEW, state=view.state)
            elif lost:
                self._begin(view.identity, highest, lost, state=view.state)
            elif highest > last["highest"]:
                self._change_last(highest=highest)
            return self.current

    def check_file(self, incarnation: int, number: int, fingerprint: str, believe: Believe = _believe) -> None:
        """Compare the fingerprint of file ``number`` with the stored one, or store it. The fingerprint is from a
        stream.

        Raises :class:`Diverged` if the file has changed, and :class:`SourceUnavailable` if another incarnation began
        meanwhile.
        """
        with self._lock:
            one = self._known[-1]
            if one["number"] != incarnation:
                raise SourceUnavailable(
                    f"the log is in incarnation {one['number']} now, and this reader was opened in {incarnation}",
                    hint="it is opened again, which looks whether there is a way to the new one",
                )
            known = one["files"].get(str(number))
            if known is not None and not same_file(known, fingerprint):
                believe(f"binlog file {number} of {one['server']} is {fingerprint}, no longer {known}")
                self._begin(one["server"], number, _ANEW, {str(number): fingerprint})
                raise Diverged(
                    f"binlog file {number} is another file than before: {_ANEW.why}",
                    hint=_ACCEPT,
                    position=f"file {number}",
                )
            if known is None or len(fingerprint) > len(known):
                files = _newest({**one["files"], str(number): fingerprint}, _FINGERPRINTS)
                self._change_last(files=files, highest=max(one["highest"], number))

    def knows_file(self, number: int) -> bool:
        """Whether the file is known in the current incarnation."""
        known = self._known
        return bool(known) and str(number) in known[-1]["files"]

    def read_since(self, incarnation: int) -> list[tuple[int, str]]:
        """The ended incarnations from this one on, each with the logical position up to which it was read."""
        return [
            (int(one["number"]), str(one["read"]))
            for one in self._known[:-1]
            if one["number"] >= incarnation and one.get("read")
        ]

    def begun_with(self, incarnation: int) -> str:
        """MariaDB: the server's ``gtid_binlog_state`` when the incarnation began; empty: unknown."""
        return next((str(one.get("state", "")) for one in self._known if one["number"] == incarnation), "")

    @property
    def unproven(self) -> bool:
        """Whether the present incarnation began only because the log could not be proven to be the known one."""
        known = self._known
        return bool(known) and bool(known[-1].get("unproven", False))

    def check_way(self, marker: Datamarker) -> None:
        """Check that GTIDs may lead from the marker's incarnation to the present one.

        Raises :class:`Diverged` if the incarnation is unknown here, or if its server has begun its log again since.
        """
        number, known = marker.order.incarnation, self._known
        start = next((i for i, one in enumerate(known) if one["number"] == number), None)
        if start is None:
            raise Diverged(
                f"the datamarker {marker} is of incarnation {number}, which was never seen here; the log "
                f"is in {known[-1]['number'] if known else 'none'}",
                position=str(marker.order),
                hint=f"what is known of the log's servers is in {self._state}: bring back what was there, or start the "
                "application anew",
            )
        server, read = known[start]["server"], known[start].get("read", "")
        for one in known[start + 1 :]:
            if one["server"] == server and one["reset"]:
                raise _anew(marker, one, read)

    # --- inside, with the lock held ----------------------------------------------------------------------------

    def _begin(
        self, server: str, highest: int, lost: Lost | None, files: Mapping[str, str] | None = None, state: str = ""
    ) -> None:
        """Begin and store the next incarnation. ``lost``: ``None``: the server continues its earlier log. ``files``:
        fingerprints of its files. ``state``: MariaDB's ``gtid_binlog_state``."""
        known = list(self._known)
        number = int(known[-1]["number"]) + 1 if known else 1
        read = None if self._high_water is None else self._high_water.last
        if known and read is not None and read.order.incarnation == known[-1]["number"]:
            known[-1] = {**known[-1], "read": read.delivered}
        one = {"number": number, "server": server, "highest": highest, "reset": lost is not None, "files": files or {}}
        if state:
            one["state"] = state
        if lost is not None:
            one |= {"why": lost.why, "unproven": lost.unproven}
        if lost is not None and lost.shared is not None:
            one["shared"] = str(lost.shared)
        before = _last_of(known, server) if lost is None or lost.shared is not None else None
        if before is not None:
            one["files"] = before["files"]
        self._keep(_bounded([*known, one]))

    def _change_last(self, **changes: object) -> None:
        *ended, last = self._known
        changed = {**last, **changes}
        if changed != last:
            self._keep([*ended, changed])

    def _keep(self, known: list[dict[str, Any]]) -> None:
        keep(self._state, HISTORIES, {"incarnations": known})
        self._known = known


def _last_of(known: list[dict[str, Any]], server: str) -> dict[str, Any] | None:
    return next((one for one in reversed(known) if one["server"] == server), None)


def _newest(files: Mapping[str, str], most: int) -> dict[str, str]:
    """The fingerprints of the files with the highest numbers."""
    return {number: files[number] for number in sorted(files, key=int)[-most:]}


def _bounded(known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The incarnations without facts that are not needed any more: see the module."""
    last = known[-1]
    servers = {last["server"]}
    bounded = [last]
    for one in reversed(known[-_INCARNATIONS:-1]):
        files = {} if one["server"] in servers else _newest(one["files"], _FINGERPRINTS_OF_OTHERS)
        servers.add(one["server"])
        bounded.append({**one, "files": files})
    sizes = [len(json.dumps(one)) for one in bounded]
    while len(bounded) > 1 and sum(sizes) > _MOST_BYTES:
        del bounded[-1], sizes[-1]
    bounded.reverse()
    return bounded


def same_file(known: str, fingerprint: str) -> bool:
    """Whether two fingerprints are of the same file. A shorter one lacks parts that were not read, or that an earlier
    release did not store."""
    return all(one == other for one, other in zip(known.split("-"), fingerprint.split("-"), strict=False))


def _anew(marker: Datamarker, one: Mapping[str, Any], read: str) -> Diverged:
    """The error for ``marker`` after incarnation ``one`` replaced its log. ``read``: how far that log was read."""
    order, now, why = marker.order, int(one["number"]), one.get("why", _ANEW.why)
    shared = LogPosition.parse(one["shared"]) if "shared" in one else None
    if shared is not None and order.incarnation == shared.incarnation and order <= shared:
        return Diverged(
            f"{why}; what was read behind {shared} may have been delivered although it was not acknowledged, and no "
            "log holds it any more",
            first_missing=str(shared),
            last_missing=read,
            resume=str(LogPosition(now, order.file, order.offset)),
            position=str(order),
            hint=GONE,
        )
    return Diverged(
        f"the datamarker {marker} is of incarnation {order.incarnation}; incarnation {now} began since: {why}",
        position=str(order),
        hint=f"{_ACCEPT}. {_same_history(marker)}",
    )


def _same_history(marker: Datamarker) -> str:
    if not marker.delivered:
        return "If the log is the same all the same: `wormholectl markers set APP/SHARD PLACE` goes on there"
    return (
        "If it is the same server with the same history: "
        f"`wormholectl markers set APP/SHARD {marker.delivered}` goes on behind what was delivered"
    )
