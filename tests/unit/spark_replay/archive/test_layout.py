"""Names within an archive, and whose it is."""

from __future__ import annotations

import pytest

from spark_replay.archive.layout import (
    About,
    about_from_json,
    about_to_json,
    manifest_path,
    version_of,
)
from wormhole.model.errors import ArchiveError

FOR_EVER = b'{"format": 1, "dataset": "d", "copy": "c", "created": Infinity}'


def test_manifests_sort_as_their_numbers_do() -> None:
    names = [manifest_path("db1", number) for number in (1, 9, 10, 2**64 - 1)]
    assert names == sorted(names)
    assert [version_of(name.rpartition("/")[2]) for name in names] == [1, 9, 10, 2**64 - 1]
    others = [".00000000000000000001.json.ab", "1.json", "00000000000000000001.json.bak", "x"]
    assert not any(map(version_of, others))


def test_whose_archive_it_is() -> None:
    about = About("orders", "main", 7)
    assert about_from_json(about_to_json(about), "x") == about


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"format": "1"}', b'{"format": 1}', b"\xff", b"[" * 100_000, FOR_EVER]
)
def test_what_does_not_say_it(data: bytes) -> None:
    with pytest.raises(ArchiveError, match=r"^/a/archive.json does not say whose"):
        about_from_json(data, "/a/archive.json")
