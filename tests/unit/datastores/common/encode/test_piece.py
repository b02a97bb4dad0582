"""What encoders hand on."""

from __future__ import annotations

from array import array

from datastores.common.encode.piece import ALL_SHARDS, HASHED, Piece


def test_the_stand_ins_are_no_ordinals() -> None:
    assert len({ALL_SHARDS, HASHED}) == 2
    assert array("I", [ALL_SHARDS, HASHED]).tolist() == [ALL_SHARDS, HASHED]  # they fit the column


def test_pieces_do_not_share_their_optional_columns() -> None:
    one, two = (Piece(b"", *(array("I") for _ in range(6))) for _ in range(2))
    one.tx_source.append(1)
    assert not two.tx_source
