"""The incarnations of a log, kept for later starts: which history of which server a position belongs to.

A place (file, offset) means something in one history of one server only. Another one begins when the server behind the
URL is another (failover, restore) or began its log anew (``RESET MASTER``, a restored copy). The second shows in its
files: the log's end falls, a file that was seen before is another one now, or none that was seen is there any more. A
file's fingerprint is when and by which server it was begun (its format description) and which GTIDs were logged before
it (the list that follows). What is kept is small, for hosts may share it: of each server the newest incarnation has
fingerprints, and of one that is not the present server those of its newest files. The newest file that was seen and is
still there decides whether the log is the same (`datastores.mysql.history.continuity`).
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
_MOST_BYTES: Final = 768 << 10  # all that is kept takes at most this; a node of ZooKeeper holds 1 MiB
_ACCEPT: Final = f"find out whether the server was restored from a backup. If it was: {REPAIR}"
GONE: Final = (
    "look in the application's data for changes of these transactions and take them back, then "
    "`wormholectl flows accept-loss APP/SHARD`: it goes on behind its datamarker, with what the server has"
)
"""The next step for a flow whose delivered and unacknowledged updates no log holds any more."""


def _believe(what: str) -> None:
    """For answers that need no second one."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a server. ``files``: fingerprints by number; ``current``: no other server was seen since."""

    files: Mapping[int, str]
    current: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """``why`` a server's log is not the one that was seen of it. ``unproven``: it may be, and nothing shows it.
    ``shared``: up to there it is; what was read behind that place is gone."""

    why: str
    unproven: bool = False
    shared: LogPosition | None = None


_ANEW: Final = Lost("the server began its log anew: RESET MASTER, or a restored copy")


class Incarnations:
    """Thread-safe. Every change is kept before a place of the new incarnation can be handed out. Questions do not wait
    for that.

    ``state``: where they are kept. ``high_water``: how far the log was read, which is kept for each incarnation that
    ended. ``believe`` (see `datastores.mysql.history.confirmation`) is called before another history is believed in.
    What changes something raises :class:`SourceUnavailable` when it cannot be kept, and what else the state raises that
    passes by itself; nothing is changed then.
    """

    def __init__(self, state: SourceState, high_water: HighWater | None = None) -> None:
        """Raises :class:`SourceUnavailable` when what is kept cannot be read."""
        self._state = state
        self._high_water = high_water
        self._lock = threading.Lock()  # one change at a time
        # Oldest first. Replaced as a whole, and never changed.
        self._known = load_incarnations(state, server=str, highest=int, reset=bool, files=dict)

    @property
    def current(self) -> int:
        """The incarnation of the log as it was last seen; 0 before that."""
        return self.reached.incarnation

    @property
    def reached(self) -> LogPosition:
        """The highest file that was seen in the current incarnation; zeros before that."""
        known = self._known
        last = known[-1] if known else {"number": 0, "highest": 0}
        return LogPosition(int(last["number"]), int(last["highest"]), 0)

    def known(self, server: str) -> Known | None:
        """What is known of a server's present log; ``None``: it was never seen."""
        known = self._known
        one = _last_of(known, server)
        if one is None:
            return None
        return Known({int(number): file for number, file in one["files"].items()}, one is known[-1])

    def observe(
        self, view: ServerState, since: LogPosition | None = None, lost: Lost | None = None, believe: Believe = _believe
    ) -> int:
        """The incarnation that the server's log is in, with this view of it.

        ``since``: how far the log was seen before the server was asked, at least `reached`: a log that ends before that
        began anew. What only a reader saw since then may be missing in the view; without ``since`` no reader saw any.
        ``lost``: the server's log is not the one that was seen of it (see `datastores.mysql.history.continuity`).
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
        """The stream shows the beginning of file ``number``.

        Raises :class:`Diverged` when it is not the file that it was, :class:`SourceUnavailable` when another
        incarnation began meanwhile.
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
        """Whether the file was seen in the current incarnation."""
        known = self._known
        return bool(known) and str(number) in known[-1]["files"]

    def read_since(self, incarnation: int) -> list[tuple[int, str]]:
        """Incarnations from that one on which ended, and the logical position up to which each was read."""
        return [
            (int(one["number"]), str(one["read"]))
            for one in self._known[:-1]
            if one["number"] >= incarnation and one.get("read")
        ]

    def begun_with(self, incarnation: int) -> str:
        """MariaDB: the ``gtid_binlog_state`` of the incarnation's server when it began; empty where it is not known."""
        return next((str(one.get("state", "")) for one in self._known if one["number"] == incarnation), "")

    @property
    def unproven(self) -> bool:
        """Whether the present incarnation began because nothing showed that the log is the one that was seen."""
        known = self._known
        return bool(known) and bool(known[-1].get("unproven", False))

    def check_way(self, marker: Datamarker) -> None:
        """Whether the way from the marker's incarnation to the present one may be bridged by GTIDs.

        Raises :class:`Diverged` when the incarnation is not known here, or its server began its log anew since.
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
        """The next incarnation. Without ``lost`` the server's log goes on. ``files``: fingerprints of its files.
        ``state``: MariaDB's ``gtid_binlog_state``."""
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
    """Without what no question needs any more: see the module."""
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
    """Whether two fingerprints are of one file: the shorter one lacks what was not read of it, or what an earlier
    release did not keep."""
    return all(one == other for one, other in zip(known.split("-"), fingerprint.split("-"), strict=False))


def _anew(marker: Datamarker, one: Mapping[str, Any], read: str) -> Diverged:
    """The log that ``marker`` is of ended with the incarnation ``one``; it was read up to ``read``."""
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
