"""Searching the log for a place, and the GTIDs that its files cover."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from datastores.mysql.decode import events
from datastores.mysql.log import scan
from datastores.mysql.log.gtid_coverage import GtidCoverage, all_lacking
from datastores.mysql.log.scan import find_next, last_marker, pass_to, see_file
from datastores.mysql.server.state import ServerState, StateQueries
from tests.support import mysql_events as build
from tests.support.mysql_dump import Scripted, format_description, insert, rotate, table, xa_prepare
from wormhole.model.errors import Diverged, PositionPurged, SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition

# --- scan ---


XA = "X'61',X'',1"


class Log:
    """Three transactions in file 3; the second one prepares an XA transaction."""

    def __init__(self, begin: int = 0) -> None:
        """``begin``: number of the transaction that the dump begins with."""
        self.stream = build.Stream()
        rotate(self.stream, "binlog.000003", 4)
        format_description(self.stream)
        self.ends = [self.stream.offset]
        self.stream.transaction(1, table(), insert(1))
        self.ends.append(self.stream.offset)
        self.stream.add(build.GTID, build.gtid(build.UUID, 2))
        for kind, body in (
            (build.QUERY, build.query(f"XA START {XA}")),
            table(),
            insert(2),
            (build.QUERY, build.query(f"XA END {XA}")),
            (events.XA_PREPARE, xa_prepare(b"a")),
        ):
            self.stream.add(kind, body)
        self.ends.append(self.stream.offset)
        self.stream.transaction(3, table(), insert(3))
        self.ends.append(self.stream.offset)

    def place(self, n: int) -> LogPosition:
        """After the ``n``-th transaction."""
        return LogPosition(1, 3, self.ends[n])

    def scripted(self, folder: Path) -> Scripted:
        return Scripted(folder, self.stream)


def anchor_of(log: Log, folder: Path, n: int) -> Anchor:
    scripted = log.scripted(folder)
    pass_to(scripted.walk, log.place(n), None)
    assert scripted.walk.anchor is not None
    return scripted.walk.anchor


@pytest.mark.parametrize("n", [1, 2, 3])
def test_to_a_place_with_its_anchor_and_nothing_is_encoded(tmp_path: Path, n: int) -> None:
    log = Log()
    anchor = anchor_of(log, tmp_path, n)
    assert anchor.begin == log.place(n - 1)
    scripted = log.scripted(tmp_path)
    pass_to(scripted.walk, log.place(n), anchor)
    assert scripted.walk.place == log.place(n)
    assert not scripted.encoder.rows.updates.count
    assert not scripted.encoder.suppress
    # What was prepared on the way is there for its commit.
    assert (scripted.prepared.oldest == log.place(1)) == (n >= 2)


def test_what_follows_is_encoded(tmp_path: Path) -> None:
    log = Log()
    scripted = log.scripted(tmp_path)
    pass_to(scripted.walk, log.place(2), None)
    while scripted.walk.step(1 << 20, 0.0):
        pass
    assert list(scripted.encoder.take().tx_number) == [3]


@pytest.mark.parametrize("change", ["checksum", "id", "begin"])
def test_another_anchor_is_another_log(tmp_path: Path, change: str) -> None:
    log = Log()
    anchor = anchor_of(log, tmp_path, 3)
    other = {
        "checksum": replace(anchor, checksum=anchor.checksum ^ 1),
        "id": replace(anchor, id=f"{build.UUID_TEXT}:4"),
        "begin": replace(anchor, begin=log.place(0)),
    }[change]
    with pytest.raises(Diverged) as error:
        pass_to(log.scripted(tmp_path).walk, log.place(3), other)
    assert error.value.hint
    assert error.value.position == str(log.place(3))


def test_a_place_inside_of_a_transaction_is_none(tmp_path: Path) -> None:
    log = Log()
    inside = LogPosition(1, 3, log.ends[1] - 31)  # before the XID event
    for order in (inside, LogPosition(1, 3, log.ends[1] - 5)):
        with pytest.raises(Diverged, match="no transaction's end"):
            pass_to(log.scripted(tmp_path).walk, order, None)


def test_what_the_server_does_not_send_is_not_waited_for_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_STUCK_S", 0.0)
    log = Log()
    with pytest.raises(SourceUnavailable, match="does not send") as error:
        pass_to(log.scripted(tmp_path).walk, LogPosition(1, 3, log.ends[3] + 1), None)
    assert error.value.hint


def test_the_next_transaction_and_the_file(tmp_path: Path) -> None:
    log = Log()
    assert find_next(log.scripted(tmp_path).walk) == log.place(0)
    scripted = log.scripted(tmp_path)
    see_file(scripted.walk)
    assert scripted.seen == [(1, 3, "1700000000-1")]


def test_the_last_transaction_end_before_a_place(tmp_path: Path) -> None:
    log = Log()
    for n in (0, 1, 2, 3):
        for wanted in (log.ends[n], log.ends[n] + 20):
            if wanted > log.ends[3]:
                continue
            scripted = log.scripted(tmp_path)
            marker = last_marker(scripted.walk, LogPosition(1, 3, wanted), scripted.delivered, scripted.prepared)
            assert marker.order == log.place(n)
            assert marker.delivered == ("", "1", "1-2", "1-3")[n].join((f"{build.UUID_TEXT}:" if n else "", ""))
            assert (marker.anchor is None) == (n == 0)
            assert marker.read_from == log.place(min(n, 1) if n >= 2 else n)


def test_the_last_transaction_end_by_a_time(tmp_path: Path) -> None:
    log, base = Log(), 1_700_000_000_000_000
    for number, us in ((4, base + 6), (5, base + 7), (6, base + 6)):  # a clock that goes back makes nothing earlier
        log.stream.transaction(number, table(), insert(number), committed_at_us=us)
        log.ends.append(log.stream.offset)
    for until, n in ((base + 5, 3), (base + 6, 4), (base + 7, 6), (base + 9, 6)):
        scripted = log.scripted(tmp_path)
        marker = last_marker(scripted.walk, log.place(6), scripted.delivered, scripted.prepared, until)
        assert marker.order == log.place(n)
        assert marker.delivered == f"{build.UUID_TEXT}:1-{n}"
        assert marker.read_from == log.place(1), "what is prepared there is read again"
        assert marker.committed_at_us == {3: 5_000_000, 4: base + 6, 6: base + 6}[n]


def test_a_large_event_that_arrives_slowly_is_waited_for_and_a_drip_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("datastores.mysql.log.scan.time.monotonic", lambda: now[0])
    walk = SimpleNamespace(place=LogPosition(1, 3, 4), arrived=0)
    stalled = scan._Stalled(walk)  # type: ignore[arg-type]
    for _ in range(100):
        now[0] += 14
        walk.arrived += 64 << 10
        stalled.check(LogPosition(1, 3, 1 << 30))
    with pytest.raises(SourceUnavailable, match="does not send"):
        for _ in range(2):
            now[0] += 14
            walk.arrived += 100
            stalled.check(LogPosition(1, 3, 1 << 30))


# --- gtid coverage ---


A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
PLACE = LogPosition(1, 2, 300)


class Begin:
    """Stands for the queries of a MariaDB whose oldest file begins at a position."""

    def __init__(self, position: str) -> None:
        self.mariadb = True
        self._position = position

    def position_before(self, connection: object, view: ServerState, number: int) -> str:
        assert view.name(number) == "binlog.000007"
        return self._position


def mysql(executed: str, purged: str = "") -> GtidCoverage:
    view = ServerState("u", 1, "binlog", ((7, 100),), (7, 100), executed, purged)
    return GtidCoverage(StateQueries(mariadb=False, version=(8, 4, 0)), cast(Any, None), view)


def mariadb(position: str, state: str, begin: str = "", begun_with: str = "") -> GtidCoverage:
    view = ServerState("1", 1, "binlog", ((7, 100),), (7, 100), position, state=state)
    return GtidCoverage(cast(StateQueries, Begin(begin)), cast(Any, None), view, {1: "", 2: begun_with}.__getitem__)


def marker(delivered: str) -> Datamarker:
    return Datamarker(PLACE, delivered, PLACE)


def test_mysql_goes_on_when_all_that_was_delivered_is_executed_and_the_rest_is_there() -> None:
    reach = mysql(f"{A}:1-9", f"{A}:1-5")
    reach.check(marker(f"{A}:1-5"))
    reach.check(marker(f"{A}:1-9"))
    assert reach.is_all(f"{A}:1-9")
    assert not reach.is_all(f"{A}:1-8")


def test_mysql_lacks_what_was_delivered() -> None:
    with pytest.raises(Diverged, match=f"{A}:10") as error:
        mysql(f"{A}:1-9").check(marker(f"{A}:1-10"))
    assert error.value.position == str(PLACE)
    assert error.value.hint
    assert error.value.text.count(str(PLACE)) == 1


def test_mysql_purged_what_was_not_delivered() -> None:
    with pytest.raises(PositionPurged) as error:
        mysql(f"{A}:1-9,{B}:1-3", f"{A}:1-7,{B}:1-2").check(marker(f"{A}:1-5"))
    assert error.value.first_missing == error.value.last_missing == f"{A}:6-7,{B}:1-2"
    assert error.value.hint


def test_mariadb_goes_on_when_the_domains_are_there() -> None:
    reach = mariadb("0-2-9,1-1-4", "0-1-7,0-2-9,1-1-4", "0-1-5")
    reach.check(marker("0-1-7,1-1-2"))
    reach.check(marker("0-1-5"))
    assert reach.is_all("0-2-9,1-1-4")
    assert not reach.is_all("0-2-9")


def test_mariadb_lacks_a_transaction_also_when_its_number_was_given_by_another_server() -> None:
    with pytest.raises(Diverged, match="0-1-8"):
        mariadb("0-2-9", "0-1-7,0-2-9").check(marker("0-1-8"))
    with pytest.raises(Diverged, match="5-1-1"):
        mariadb("0-1-9", "0-1-9").check(marker("0-1-9,5-1-1"))


def test_mariadb_purged_what_was_not_delivered() -> None:
    with pytest.raises(PositionPurged) as error:
        mariadb("0-1-20,1-1-4", "0-1-20,1-1-4", "0-1-12,1-1-2").check(marker("0-1-9"))
    assert (error.value.first_missing, error.value.last_missing) == ("0-1-10,1-1-1", "0-1-12,1-1-2")


def test_without_gtids_a_purged_file_is_a_loss_reported_by_places() -> None:
    with pytest.raises(PositionPurged) as error:
        mysql("").check(marker(""))
    assert (error.value.first_missing, error.value.last_missing) == ("1/2/300", "1/7/4")
    assert "at 1/7/4 (binlog.000007:4) and no longer holds what follows 1/2/300 (binlog.000002:300)" in str(error.value)


def test_what_was_read_elsewhere_and_is_in_no_log_any_more() -> None:
    mysql(f"{A}:1-9,{B}:1-2").check_read(marker(f"{A}:1-7"), 2, f"{A}:1-7,{B}:1-2")
    with pytest.raises(Diverged, match=f"{B}:1-2 was read behind 1/2/300 in incarnation 2") as error:
        mysql(f"{A}:1-9").check_read(marker(f"{A}:1-7"), 2, f"{A}:1-7,{B}:1-2")
    assert (error.value.first_missing, error.value.last_missing) == (f"{B}:1-2", f"{B}:1-2")
    assert error.value.resume == f"{A}:1-7"
    assert "accept-loss" in str(error.value.hint)


def test_the_same_on_mariadb_with_what_follows_the_datamarker() -> None:
    mariadb("0-1-9", "0-2-8,0-1-9").check_read(marker("0-1-6"), 2, "0-2-8")
    with pytest.raises(Diverged) as error:
        mariadb("0-1-9", "0-1-9").check_read(marker("0-1-6"), 2, "0-2-8,5-1-3")
    assert (error.value.first_missing, error.value.last_missing) == ("0-2-7,5-1-1", "0-2-8,5-1-3")


def test_mariadb_names_the_first_that_is_missing_behind_what_the_server_executed() -> None:
    with pytest.raises(Diverged) as error:
        mariadb("0-2-9", "0-1-7,0-2-9,1-1-4").check(marker("0-2-13,1-1-6"))
    assert (error.value.first_missing, error.value.last_missing) == ("0-2-10,1-1-5", "0-2-13,1-1-6")
    with pytest.raises(Diverged) as error:
        mariadb("0-1-74", "0-1-74").check_read(marker("0-1-53"), 1, "0-1-80")
    assert (error.value.first_missing, error.value.last_missing) == ("0-1-75", "0-1-80")


@pytest.mark.parametrize(
    ("state", "begun_with", "first"),
    [
        # The copy that was read last had replicated up to 9, and wrote the rest itself.
        ("0-1-9", "0-1-9", "0-2-10"),
        ("0-1-9", "0-1-7", "0-2-8"),
        ("0-1-7", "0-1-9", "0-2-8"),
        # What the server wrote since, and others, is of another history: it lies nowhere in front of what is missing.
        ("0-1-12", "0-1-9", "0-2-10"),
        ("0-1-9,0-3-12", "0-1-9", "0-2-10"),
        ("0-1-99", "0-1-9", "0-2-10"),
        ("0-1-9,0-2-11", "0-1-9", "0-2-12"),
        ("0-1-9", "", "0-2-1"),
        ("", "0-1-9", "0-2-1"),
        ("1-1-12", "1-1-12", "0-2-1"),
    ],
)
def test_mariadb_never_names_less_than_what_is_missing(state: str, begun_with: str, first: str) -> None:
    place = LogPosition(2, 2, 300)
    with pytest.raises(Diverged) as error:
        mariadb("0-1-9", state, begun_with=begun_with).check(Datamarker(place, "0-2-13", place))
    assert (error.value.first_missing, error.value.last_missing) == (first, "0-2-13")


def test_what_is_lacking_of_several_positions() -> None:
    view = ServerState("u", 1, "binlog", ((7, 100),), (7, 100), f"{A}:1-9", state="0-1-9,0-2-4")
    assert all_lacking(view, [f"{A}:1-10", f"{A}:8-12", "", "0-1-1"], mariadb=False) == f"{A}:10-12,0-1-1"
    assert all_lacking(view, ["0-1-10", "0-1-12", "0-2-4", "0-3-1", f"{A}:1"], mariadb=True) == f"0-1-12,0-3-1,{A}:1"
    assert all_lacking(view, (), mariadb=True) == ""
