"""What proves that an idle log is the one that was read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from datastores.postgres.history import proof
from datastores.postgres.history.timelines import Timelines
from datastores.postgres.server.address import Address
from datastores.postgres.server.state import AnotherServer, ServerState
from wormhole.model.position import LogPosition

_MIB = 1 << 20
_ADDRESS = Address("db1", 5432, "wormhole", "shop", "wormhole_db1", "wormhole_db1")
_STATE = ServerState("7", 1, 500, 500, 150000, "logical", 0, 60.0, True, started="5")


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

    def checksum(address: Address, state: ServerState, timeline: int, begin: int, end: int) -> int:
        asked.append((begin, end))
        return 7

    monkeypatch.setattr(proof, "checksum_of_log", checksum)
    made = proof.log_bytes_anchor(_ADDRESS, _STATE, Timelines(1, ()), LogPosition(1, 0, end))
    assert asked == ([] if begin is None else [(begin, end)])
    assert (made and made.begin.offset) == begin


@pytest.mark.parametrize(
    "there", [("8", "00000001", "5"), ("7", "00000001", "6"), ("7", "00000002", "5")], ids=["other", "copy", "promoted"]
)
def test_the_bytes_of_another_server_prove_nothing(
    monkeypatch: pytest.MonkeyPatch, there: tuple[str, str, str]
) -> None:
    """The address leads elsewhere since the log was looked at: its bytes there would look like those of a lost log."""
    closed: list[bool] = []
    session = SimpleNamespace(query=lambda _: [there], start_copy=lambda _: None, close=lambda: closed.append(True))
    monkeypatch.setattr(proof, "connect", lambda *_, **__: session)
    with pytest.raises(AnotherServer, match=rf"another server answers .* of system {there[0]}; it was timeline 1 of "):
        proof.checksum_of_log(_ADDRESS, _STATE, 1, 4096, 8192)
    assert closed
