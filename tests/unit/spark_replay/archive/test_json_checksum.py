"""A JSON file that begins with a checksum of itself."""

from __future__ import annotations

import json

import pytest

from spark_replay.archive.json_checksum import has_checksum, with_checksum

GIVEN = {"format": 1, "name": "naïve", "crc32 of another": '{"crc32":"00000000",'}


@pytest.mark.parametrize("how", [{}, {"separators": (",", ":")}, {"indent": 1, "ensure_ascii": False}])
def test_every_flipped_bit_is_found(how: dict[str, object]) -> None:
    data = with_checksum(GIVEN, **how)
    assert has_checksum(data)
    found = json.loads(data)
    assert found.pop("crc32") != "00000000"
    assert found == GIVEN
    for at in range(len(data)):
        for bit in range(8):
            with pytest.raises(ValueError, match="differs from its own checksum"):
                has_checksum(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])


def test_what_an_earlier_release_wrote_has_none() -> None:
    assert not has_checksum(json.dumps(GIVEN).encode())
    assert not has_checksum(json.dumps(GIVEN, indent=1).encode())
