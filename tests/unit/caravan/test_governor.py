"""Memory and speed that caravans share."""

from __future__ import annotations

from typing import Any, cast

from caravan.caravan import Caravan
from caravan.governor import Governor, Limits
from wormhole.model.position import LogPosition

MIB = 1 << 20


class FakeBuffer:
    def __init__(self, size: int, place: int) -> None:
        self.size = size
        self.start = LogPosition(1, 1, 0)
        self.place = LogPosition(1, 1, place)


class FakeCaravan:
    """What the governor sees of a caravan, with what it was told."""

    def __init__(self, number: int, size: int, place: int, flows: int = 1) -> None:
        self.number = number
        self.buffer = FakeBuffer(size, place)
        self.flows = set(range(flows))
        self.aimed: float | None = None
        self.shrunk = 0

    def shrink(self, size: int) -> int:
        self.shrunk += size
        self.buffer.size -= size
        return size

    def bytes_per_s(self, now: float) -> float:
        return 10.0 * MIB

    def aim(self, rate: float, now: float) -> None:
        self.aimed = rate


def governor(*caravans: FakeCaravan, **limits: Any) -> Governor:
    return Governor(Limits(**limits), {c.number: cast("Caravan", c) for c in caravans})


def real(caravan: FakeCaravan) -> Caravan:
    return cast("Caravan", caravan)


def test_the_lead_is_furthest_ahead_and_the_oldest_among_equals() -> None:
    one, two, three = FakeCaravan(1, 0, 50), FakeCaravan(2, 0, 90), FakeCaravan(3, 0, 90)
    told = governor(one, two, three)
    assert told.lead is real(two)
    assert told.is_lead(real(two))
    assert not told.is_lead(real(three))
    assert governor().lead is None


def test_a_lone_caravan_may_fill_everything() -> None:
    one = FakeCaravan(1, 5 * MIB, 10)
    told = governor(one, buffer_bytes=64 * MIB)
    assert told.share(real(one)) == told.budget(real(one)) == 64 * MIB
    assert told.used() == 5 * MIB


def test_half_is_the_leads_and_what_nobody_uses_is_anybodys() -> None:
    head, one, two = FakeCaravan(1, 4 * MIB, 90), FakeCaravan(2, 20 * MIB, 50), FakeCaravan(3, 0, 10)
    told = governor(head, one, two, buffer_bytes=64 * MIB)
    assert (told.share(real(head)), told.share(real(one))) == (32 * MIB, 16 * MIB)
    assert told.budget(real(one)) == 60 * MIB
    assert told.budget(real(two)) == 40 * MIB


def test_who_has_more_than_its_share_gives_back() -> None:
    head, one, two = FakeCaravan(1, 30 * MIB, 90), FakeCaravan(2, 40 * MIB, 50), FakeCaravan(3, 4 * MIB, 10)
    told = governor(head, one, two, buffer_bytes=64 * MIB)
    told.reclaim(real(two))
    assert (head.shrunk, one.shrunk, two.shrunk) == (0, 10 * MIB, 0)
    told.reclaim(real(two))
    assert one.shrunk == 10 * MIB, "all fits now"


def test_one_over_its_share_takes_nothing_from_others() -> None:
    head, one = FakeCaravan(1, 40 * MIB, 90), FakeCaravan(2, 40 * MIB, 50)
    told = governor(head, one, buffer_bytes=64 * MIB)
    told.reclaim(real(one))
    assert head.shrunk == 0


def test_others_leave_room_in_the_common_cap_for_the_lead() -> None:
    head, one = FakeCaravan(1, 0, 90), FakeCaravan(2, 0, 50)
    told = governor(head, one, total_read_rate=100.0 * MIB)
    assert told.kept_for_lead(real(one)) == told.total_cap.piece > 0
    assert told.kept_for_lead(real(head)) == 0
    assert governor(head, one).kept_for_lead(real(one)) == 0


def test_every_caravan_gets_its_speed() -> None:
    head, one = FakeCaravan(1, 0, 90 * MIB), FakeCaravan(2, 0, 50 * MIB)
    told = governor(head, one, total_read_rate=40.0 * MIB)
    told.adjust(0.0, 1.0)
    assert head.aimed is not None
    assert one.aimed is not None
    assert 0 < one.aimed <= 40.0 * MIB
