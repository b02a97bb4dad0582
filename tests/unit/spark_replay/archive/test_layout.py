"""Names within an archive, and whose it is."""

from __future__ import annotations

import json

import pytest

from spark_replay.archive.layout import (
    About,
    about_from_json,
    about_to_json,
    data_folder,
    garbage_path,
    manifest_path,
    version_of,
)
from wormhole.model.errors import ArchiveError


def test_manifests_sort_as_their_numbers_do() -> None:
    names = [manifest_path("db1", number) for number in (1, 9, 10, 2**64 - 1)]
    assert names == sorted(names)
    assert [version_of(name.rpartition("/")[2]) for name in names] == [1, 9, 10, 2**64 - 1]


@pytest.mark.parametrize("name", [".00000000000000000001.json.ab", "1.json", "00000000000000000001.json.bak", "x"])
def test_other_files_are_no_manifests(name: str) -> None:
    assert version_of(name) is None


def test_folders_of_a_shard_stand_beside_each_other() -> None:
    assert data_folder("db1.a%2Fb") == "db1.a%2Fb/data"
    assert garbage_path("db1") == "db1/garbage.json"


def test_whose_archive_it_is() -> None:
    about = About("orders", "main", 7)
    assert about_from_json(about_to_json(about), "x") == about


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format": "1"}', b'{"format": 1}', b"\xff", b"[" * 100_000])
def test_what_does_not_say_it(data: bytes) -> None:
    with pytest.raises(ArchiveError, match=r"^/a/archive.json does not say whose"):
        about_from_json(data, "/a/archive.json")


def test_an_archive_of_a_newer_release() -> None:
    data = json.dumps({"format": 2, "whatever": True}).encode()
    with pytest.raises(ArchiveError, match="by a newer release: its format is 2") as caught:
        about_from_json(data, "/a/archive.json")
    assert caught.value.hint == "install the release that wrote it, or a later one"
