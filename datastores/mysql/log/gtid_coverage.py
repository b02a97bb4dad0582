"""Checks whether a server can continue by GTIDs: it executed all delivered transactions, and its log holds the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.decode.gtid import GtidSet, MariaPosition
from datastores.mysql.history.delivered import is_anonymous
from datastores.mysql.history.incarnations import GONE
from datastores.mysql.log.scan import ANEW
from datastores.mysql.server.connection import reading_answers
from datastores.mysql.server.state import ServerState, StateQueries
from wormhole.model.errors import Diverged, PositionError, PositionPurged
from wormhole.model.position import Datamarker, LogPosition

__all__ = ["FILE_BEGIN", "REPLAY", "GtidCoverage", "all_lacking", "lacking", "only_deleted"]

FILE_BEGIN: Final = 4
"""The offset of a file's first event."""

REPLAY: Final = (
    "`wormholectl repair` sends what the tables hold, or replay the range from an archive; keep binlogs longer "
    "(binlog_expire_logs_seconds, expire_logs_days)"
)


def _unknown(incarnation: int) -> str:
    """A ``begun_with`` for which no earlier state is known."""
    return ""


class GtidCoverage:
    """Compares logical positions with one view of a server. Further queries use ``connection``.

    ``begun_with``: returns the ``gtid_binlog_state`` of a MariaDB server when an incarnation began; empty: unknown.
    """

    def __init__(
        self,
        queries: StateQueries,
        connection: Connection[Any],
        view: ServerState,
        begun_with: Callable[[int], str] = _unknown,
    ) -> None:
        self._queries = queries
        self._connection = connection
        self._view = view
        self._begun_with = begun_with

    def check(self, marker: Datamarker) -> None:
        """Raise :class:`Diverged` if the server lacks delivered transactions, and :class:`PositionPurged` if it purged
        other ones."""
        begin = LogPosition(marker.order.incarnation, self._view.first, FILE_BEGIN)
        if not self._view.gtids:
            raise PositionPurged(
                f"the log begins at {self._view.place(begin)} and no longer holds what follows "
                f"{self._view.place(marker.order)}; without GTIDs nothing else leads there",
                first_missing=str(marker.order),
                last_missing=str(begin),
                position=str(marker.order),
                hint=REPLAY,
            )
        self.check_executed(marker)
        if marker.anchor is not None and is_anonymous(marker.anchor.id):
            # Transactions without GTIDs are in no set, so a gap of them cannot be found.
            raise PositionPurged(
                f"the datamarker {marker} lies behind a transaction without a GTID, after which nothing can be found "
                "in the log of another server, or of files that were purged",
                first_missing=str(marker.order),
                last_missing=str(begin),
                position=str(marker.order),
                hint=REPLAY,
            )
        missing = self.missing(marker.delivered)
        if missing is not None:
            first, last = missing
            raise PositionPurged(
                f"the log begins with {self._view.name(self._view.first)} and no longer holds {first}"
                + (f" to {last}" if first != last else ""),
                first_missing=first,
                last_missing=last,
                position=str(marker.order),
                hint=REPLAY,
            )

    def check_executed(self, marker: Datamarker, *, held: bool = False) -> None:
        """Raise :class:`Diverged` if the server lacks delivered transactions.

        ``held``: its log still has the marker's file, so domains that it lacks may only have been deleted
        (`only_deleted`).
        """
        gone = self.lacking(marker.delivered)
        if gone and not (held and only_deleted(self._view, gone, mariadb=self._queries.mariadb)):
            raise Diverged(
                f"the server has not executed {gone}, which was delivered before {self._view.place(marker.order)}",
                first_missing=self._first(gone, marker.order.incarnation),
                last_missing=gone,
                position=str(marker.order),
                hint=ANEW,
            )

    def check_read(self, marker: Datamarker, incarnation: int, read: str) -> None:
        """Raise :class:`Diverged` if the server lacks log that was read in an earlier incarnation. That log may have
        been delivered after ``marker`` and not acknowledged. ``read``: how far the incarnation was read."""
        gone = self.lacking(read)
        if gone:
            raise Diverged(
                f"{gone} was read behind {marker.order} in incarnation {incarnation}, and may have been delivered "
                "although it was not acknowledged; the server has not executed it, so that no log holds it any more",
                first_missing=self._first(gone, incarnation, marker.delivered),
                last_missing=gone,
                resume=marker.delivered,
                position=str(marker.order),
                hint=GONE,
            )

    def _first(self, gone: str, incarnation: int, executed: str = "") -> str:
        """The first missing GTID of ``gone``, which was read in ``incarnation``. ``executed``: a position before the
        missing GTIDs."""
        if not self._queries.mariadb:
            return gone
        return _first_behind(_executed(self._view.state), gone, (executed, self._begun_with(incarnation)))

    def lacking(self, delivered: str) -> str:
        """The GTIDs of ``delivered`` that the server has not executed; empty: none."""
        return lacking(self._view, delivered, mariadb=self._queries.mariadb)

    def is_all(self, delivered: str) -> bool:
        """Whether every transaction that the server has executed is in ``delivered``."""
        if not self._queries.mariadb:
            return _set(self._view.gtids).issubset(GtidSet.parse(delivered))
        return not _behind(delivered, self._view.gtids)

    def missing(self, delivered: str) -> tuple[str, str] | None:
        """The first and last GTID that the server purged and that are not in ``delivered``; ``None``: there are
        none."""
        if not self._queries.mariadb:
            missing = _set(self._view.purged).subtract(GtidSet.parse(delivered))
            return (str(missing), str(missing)) if missing else None
        begin = self._queries.position_before(self._connection, self._view, self._view.first)
        behind = _behind(delivered, begin)
        if not behind:
            return None
        return ",".join(first for first, _ in behind), ",".join(last for _, last in behind)


def lacking(view: ServerState, delivered: str, *, mariadb: bool) -> str:
    """The GTIDs of ``delivered`` that a server has not executed; empty: none."""
    if not mariadb:
        return str(GtidSet.parse(delivered).subtract(_set(view.gtids)))
    executed = _executed(view.state)
    return ",".join(
        f"{domain}-{server}-{sequence}"
        for domain, (server, sequence) in sorted(MariaPosition.parse(delivered).domains().items())
        if executed.get((domain, server), 0) < sequence
    )


def only_deleted(view: ServerState, gone: str, *, mariadb: bool) -> bool:
    """Whether all GTIDs of ``gone`` are in domains that the server does not list at all.

    ``FLUSH BINARY LOGS DELETE_DOMAIN_ID`` deletes the domains of purged files on MariaDB. So an unlisted domain does
    not prove lost transactions. Only the server's files can prove that none are lost.
    """
    return mariadb and not {domain for domain, _ in _executed(view.state)} & set(MariaPosition.parse(gone).domains())


def all_lacking(view: ServerState, delivered: Collection[str], *, mariadb: bool) -> str:
    """The GTIDs of several logical positions that a server has not executed; empty: none. The position of another kind
    of datastore is returned unchanged.
    """
    sets = GtidSet()
    furthest: dict[tuple[int, int], int] = {}
    others: list[str] = []
    for text in sorted(set(delivered)):
        try:
            gone = lacking(view, text, mariadb=mariadb)
        except PositionError:
            others.append(text)
            continue
        if not mariadb:
            sets = sets.union(GtidSet.parse(gone))
            continue
        for domain, (server, sequence) in MariaPosition.parse(gone).domains().items():
            furthest[domain, server] = max(sequence, furthest.get((domain, server), 0))
    gtids = [f"{domain}-{server}-{sequence}" for (domain, server), sequence in sorted(furthest.items())]
    return ",".join(filter(None, (str(sets), *gtids, *others)))


def _executed(state: str) -> dict[tuple[int, int], int]:
    """The last sequence number of each domain and server in a ``gtid_binlog_state``."""
    executed: dict[tuple[int, int], int] = {}
    with reading_answers("gtid_binlog_state"):
        for part in filter(None, state.split(",")):
            domain, server, sequence = map(int, part.split("-"))
            executed[domain, server] = max(sequence, executed.get((domain, server), 0))
    return executed


def _first_behind(executed: Mapping[tuple[int, int], int], gone: str, before: Collection[str]) -> str:
    """MariaDB: the first missing GTID of each domain in ``gone``, a position that has only the last ones.

    ``before``: states of the history in which ``gone`` was written. All servers of a domain share one sequence of
    numbers, but ``executed`` may be of another history of the domain. So a number in ``executed`` precedes the missing
    ones only if it is also in ``before``, or if the same server wrote ``gone``.
    """
    last = MariaPosition.parse(gone).domains()
    firsts = {domain: executed.get((domain, server), 0) + 1 for domain, (server, _) in last.items()}
    for state in before:
        for (domain, server), sequence in _executed(state).items():
            shared = min(sequence, executed.get((domain, server), 0))
            if domain in last and shared < last[domain][1]:
                firsts[domain] = max(firsts[domain], shared + 1)
    return ",".join(f"{domain}-{server}-{firsts[domain]}" for domain, (server, _) in sorted(last.items()))


def _set(stated: str) -> GtidSet:
    """A GTID set from the server's text."""
    with reading_answers("the server's GTID set"):
        return GtidSet.parse(stated)


def _behind(delivered: str, position: str) -> list[tuple[str, str]]:
    """First and last missing GTID of each domain in which ``delivered`` is behind ``position``."""
    have = MariaPosition.parse(delivered).domains()
    found = []
    with reading_answers("the server's GTID position"):
        stated = MariaPosition.parse(position).domains()
    for domain, (server, sequence) in sorted(stated.items()):
        known_server, known = have.get(domain, (server, 0))
        if known < sequence:
            found.append((f"{domain}-{known_server}-{known + 1}", f"{domain}-{server}-{sequence}"))
    return found
