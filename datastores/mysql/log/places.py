"""Finds places of the log: its beginning and end, the place that a user's text names, and the place of a time."""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from datastores.mysql.decode.gtid import GtidSet, MariaPosition
from datastores.mysql.history.incarnations import Incarnations
from datastores.mysql.log.dump import FromFile, FromGtids
from datastores.mysql.log.gtid_coverage import FILE_BEGIN, REPLAY, GtidCoverage
from datastores.mysql.log.opening import Opening
from datastores.mysql.log.scan import find_next, last_marker, see_file
from datastores.mysql.server.state import ServerState, StateQueries
from wormhole.model.errors import PositionError, PositionPurged
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.log_times import begins_later

__all__ = ["Places"]

_FILE_AND_OFFSET: Final = re.compile(r"([^:/\s]+)\.(\d{6,10}):(\d{1,19})")
_FORMS: Final = "write earliest, latest, file:offset, a GTID set (MariaDB: GTID position) or incarnation/file/offset"

Ask = Callable[[Callable[[Any], Any]], Any]


class Places:
    """``ask`` runs a query on the source's control connection."""

    def __init__(self, ask: Ask, queries: StateQueries, incarnations: Incarnations, opening: Opening) -> None:
        self._ask = ask
        self._queries = queries
        self._incarnations = incarnations
        self._opening = opening

    def earliest(self) -> Datamarker:
        """The beginning of the oldest file, which may be in the folder."""
        view = self._view()
        order = LogPosition(self._incarnations.current, view.first, FILE_BEGIN)
        if self._queries.mariadb:
            delivered = self._ask(lambda control: self._queries.position_before(control, view, view.first))
        else:
            delivered = view.purged
        return Datamarker(order, delivered, order)

    def latest(self) -> Datamarker:
        """The place after the last transaction."""
        view = self._view(settled=True)
        order = self._end(view)
        return Datamarker(order, view.gtids, order)

    def locate(self, text: str) -> Datamarker:
        """See :meth:`datastores.mysql.source.MySqlSource.locate`."""
        text = text.strip()
        if text == "earliest":
            return self.earliest()
        if text == "latest":
            return self.latest()
        if found := _FILE_AND_OFFSET.fullmatch(text):
            view = self._view()
            if found[1] != view.base:
                raise PositionError(f"{text}: the server's files are called {view.base}.*", hint=_FORMS)
            return self._at(text, view, int(found[2]), int(found[3]))
        if "/" in text:
            place = LogPosition.parse(text)
            view = self._view()
            if place.incarnation != self._incarnations.current:
                raise PositionError(
                    f"{text} is of incarnation {place.incarnation}, the log is in incarnation "
                    f"{self._incarnations.current}",
                    hint="use earliest, latest or GTIDs",
                )
            return self._at(text, view, place.file, place.offset)
        return self._after_gtids(text)

    def locate_time(self, at_us: int) -> Datamarker:
        """The last transaction's end before any transaction committed after ``at_us``, in the last file begun by that
        time.

        MariaDB's times are whole seconds. A transaction may have been committed at any moment of its second.
        """
        until_us = at_us - 999_999 if self._queries.mariadb else at_us
        view = self._view(settled=True)
        end = self._end(view)
        numbers = [number for number, _ in view.all_files if number <= end.file]
        # A file was begun after all earlier files were written, at any moment of the second that it names. The first
        # file that may have been begun after the time ends the search.
        later = bisect_left(numbers, True, key=lambda number: self._begun_us(view, number) > at_us - 999_999)
        if later == 0:
            raise begins_later(self.earliest(), self._begun_us(view, numbers[0]) + 999_999 if numbers else 0)
        wanted = end if later == len(numbers) else LogPosition(end.incarnation, numbers[later], FILE_BEGIN)
        return self._last(view, numbers[later - 1], wanted, until_us)

    # --- inside ------------------------------------------------------------------------------------------------

    def _view(self, *, settled: bool = False) -> ServerState:
        view: ServerState = self._ask(lambda control: self._queries.view(control, settled=settled))
        return view

    def _end(self, view: ServerState) -> LogPosition:
        """The log's end, in a file whose fingerprint is known. So it cannot be mistaken for a place in another file of
        the same number."""
        end = LogPosition(self._incarnations.current, *view.end)
        if not self._incarnations.knows_file(end.file):
            self._begun_us(view, end.file)
        return end

    def _at(self, text: str, view: ServerState, file: int, offset: int) -> Datamarker:
        """The last transaction's end at or before a place of the present log."""
        latest = LogPosition(self._incarnations.current, *view.end)
        wanted = LogPosition(latest.incarnation, file, offset)
        if wanted > latest or (view.size(file) is not None and file != latest.file and offset > (view.size(file) or 0)):
            end = f"{view.name(latest.file)}:{latest.offset} ({latest})"
            raise PositionError(f"{text} is ahead of the log, which ends at {end}", hint="use latest")
        if file < view.first:
            raise PositionPurged(
                f"the log begins with file {view.name(view.first)} and no longer holds {text}",
                last_missing=f"{latest.incarnation}/{view.first}/{FILE_BEGIN}",
                position=text,
                hint=REPLAY,
            )
        return self._last(view, file, wanted)

    def _last(self, view: ServerState, file: int, wanted: LogPosition, until_us: int = sys.maxsize) -> Datamarker:
        """The last transaction's end at or before ``wanted`` and committed by ``until_us``. The search begins at the
        beginning of ``file``."""
        begin = LogPosition(wanted.incarnation, file, FILE_BEGIN)
        name = view.name(file)
        delivered = ""
        if self._queries.mariadb:
            delivered = self._ask(lambda control: self._queries.position_before(control, view, file))
        with closing(
            self._opening.walk(view, wanted.incarnation, FromFile(name, FILE_BEGIN), delivered, begin)
        ) as making:
            return last_marker(making.walk, wanted, making.delivered, making.prepared, until_us)

    def _begun_us(self, view: ServerState, file: int) -> int:
        """When the file was begun, in whole seconds. Stores the file's fingerprint."""
        start = FromFile(view.name(file), FILE_BEGIN)
        with closing(self._opening.walk(view, self._incarnations.current, start)) as making:
            see_file(making.walk)
            return making.walk.file.began_s * 1_000_000

    def _after_gtids(self, text: str) -> Datamarker:
        view = self._view(settled=True)
        try:
            delivered = str((MariaPosition if self._queries.mariadb else GtidSet).parse(text))
        except PositionError as error:
            raise PositionError(error.message, hint=_FORMS) from error
        if not delivered:
            raise PositionError(f"{text!r} is no place of this log", hint=_FORMS)
        ahead, missing, is_all = self._ask(
            lambda control: _compared(GtidCoverage(self._queries, control, view), delivered)
        )
        if ahead:
            raise PositionError(
                f"the server has not executed {ahead}" + (f" of {text}" if ahead != delivered else ""),
                hint="use latest, or look whether the dump is of this server",
            )
        if missing is not None:
            raise PositionPurged(
                f"the server purged {missing[0]}{f' to {missing[1]}' if missing[1] != missing[0] else ''}, "
                f"which follow {text}",
                first_missing=missing[0],
                last_missing=missing[1],
                position=text,
                hint=REPLAY,
            )
        if is_all:
            latest = self._end(view)
            return Datamarker(latest, delivered, latest)
        with closing(self._opening.walk(view, self._incarnations.current, FromGtids(delivered), delivered)) as making:
            place = find_next(making.walk)
        return Datamarker(place, delivered, place)


def _compared(reach: GtidCoverage, delivered: str) -> tuple[str, tuple[str, str] | None, bool]:
    return reach.lacking(delivered), reach.missing(delivered), reach.is_all(delivered)
