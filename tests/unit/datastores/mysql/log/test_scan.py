from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from datastores.mysql.decode import events
from datastores.mysql.log import scan
from datastores.mysql.log.scan import find_next, last_marker, pass_to, see_file
from tests.support import mysql_events as build
from tests.support.mysql_dump import Scripted, format_description, insert, rotate, table, xa_prepare
from wormhole.model.errors import Diverged, SourceUnavailable
from wormhole.model.position import Anchor, LogPosition

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
