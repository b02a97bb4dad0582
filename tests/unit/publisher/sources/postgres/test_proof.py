"""What proves that an idle log is the one that was read."""

from __future__ import annotations

import pytest

from publisher.sources.postgres import proof
from publisher.sources.postgres.address import Address
from publisher.sources.postgres.timelines import Timelines
from wormhole.model.position import LogPosition

_MIB = 1 << 20


@pytest.mark.parametrize(
    ("end", "begin"),
    [
        (5 * _MIB + 8192, 5 * _MIB + 4096),
        (5 * _MIB + 1000, 5 * _MIB),
        (5 * _MIB + 100, None),
        (5 * _MIB, None),
    ],
    ids=["within", "near its beginning", "too few bytes", "nothing of it"],
)
def test_the_bytes_of_a_proof_are_in_the_file_of_its_place(
    monkeypatch: pytest.MonkeyPatch, end: int, begin: int | None
) -> None:
    """The file before it may be removed although a slot is at the place."""
    asked: list[tuple[int, int]] = []

    def checksum(address: Address, timeline: int, begin: int, end: int) -> int:
        asked.append((begin, end))
        return 7

    monkeypatch.setattr(proof, "checksum_of_log", checksum)
    address = Address("db1", 5432, "wormhole", "shop", "wormhole_db1", "wormhole_db1")
    made = proof.log_bytes_anchor(address, "1", Timelines(1, ()), LogPosition(1, 0, end))
    assert asked == ([] if begin is None else [(begin, end)])
    assert (made and made.begin.offset) == begin
