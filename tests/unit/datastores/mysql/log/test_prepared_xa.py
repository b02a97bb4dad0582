from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.mysql.decode.large_event import Body, LargeEvent, with_length
from datastores.mysql.decode.rare_events import Xid
from datastores.mysql.log.prepared_xa import Prepared
from tests.support.given import given
from wormhole.model.errors import UnsupportedLog
from wormhole.model.position import LogPosition

A, B = Xid(b"a"), Xid(b"b")


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[Prepared]:
    made = Prepared(tmp_path / "state", budget=1000, memory=30)
    yield made
    made.close()


def prepare(prepared: Prepared, xid: Xid, offset: int, *events: bytes) -> None:
    prepared.begin(LogPosition(1, 7, offset))
    for event in events:
        prepared.add(event)
    prepared.keep(xid)


def released(prepared: Prepared, xid: Xid) -> list[bytes]:
    events = given(prepared.release(xid))
    return [event if isinstance(event, bytes) else event.header + event.body.take(event.body.left) for event in events]


def test_what_is_prepared_comes_back_once_in_order(prepared: Prepared) -> None:
    prepare(prepared, A, 100, b"one", b"two")
    assert prepared.oldest == LogPosition(1, 7, 100)
    assert released(prepared, A) == [b"one", b"two"]
    assert prepared.release(A) is None
    assert prepared.oldest is None


def test_beyond_the_memory_it_goes_through_a_file_that_has_no_name(prepared: Prepared, tmp_path: Path) -> None:
    events = [b"%d" % n * (n % 20 + 1) for n in range(20)]
    prepare(prepared, A, 100, *events[:10])
    prepare(prepared, B, 200, *events[10:])
    assert list((tmp_path / "state").iterdir()) == []
    assert prepared.oldest == LogPosition(1, 7, 100)
    assert released(prepared, A) == events[:10]
    assert prepared.oldest == LogPosition(1, 7, 200)
    assert released(prepared, B) == events[10:]


def test_the_room_of_what_is_resolved_is_used_again(prepared: Prepared) -> None:
    for n in range(10):
        prepare(prepared, A, n, b"x" * 200, b"y" * 200)
        if n % 2:
            prepared.drop(A)
        else:
            assert released(prepared, A) == [b"x" * 200, b"y" * 200]


def test_over_the_budget_it_says_what_to_do(prepared: Prepared) -> None:
    with pytest.raises(UnsupportedLog, match="1000 bytes") as error:
        prepare(prepared, A, 1, *[b"x" * 300] * 4)
    assert "XA RECOVER" in (error.value.hint or "")


def test_a_group_that_does_not_end_is_forgotten(prepared: Prepared) -> None:
    prepared.begin(LogPosition(1, 7, 5))
    prepared.add(b"x" * 20)
    assert prepared.collecting
    prepared.drop_open()
    assert prepared.oldest is None
    prepare(prepared, A, 6, b"y" * 30)  # all of the memory is free again
    assert released(prepared, A) == [b"y" * 30]


def test_one_phase_gives_back_what_was_collected(prepared: Prepared) -> None:
    prepared.begin(LogPosition(1, 7, 5))
    prepared.add(b"one")
    assert list(prepared.release_open()) == [b"one"]
    assert not prepared.collecting


def test_a_large_event_goes_to_the_file_in_parts_and_comes_back_so(tmp_path: Path) -> None:
    made = Prepared(tmp_path / "state", budget=1000, memory=30, held=60)
    large = with_length(bytes(19), 100) + bytes(range(100))
    made.begin(LogPosition(1, 7, 4))
    made.add(b"one")
    made.add_large(LargeEvent(large[:19], Body(io.BytesIO(large[19:]).read, 100)))
    made.add(b"x" * 50)
    made.keep(A)
    events = given(made.release(A))
    assert next(events) == b"one"
    event = next(events)
    assert isinstance(event, LargeEvent)
    assert event.header + event.body.take(1000) == large
    assert list(events) == [b"x" * 50]
    made.begin(LogPosition(1, 7, 4))
    with pytest.raises(UnsupportedLog, match="more than the budget"):
        made.add_large(LargeEvent(large[:19], Body(io.BytesIO(bytes(990)).read, 990)))
    made.close()
