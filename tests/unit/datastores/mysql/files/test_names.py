from __future__ import annotations

import pytest

from datastores.mysql.files.names import basename, file_name, file_number
from wormhole.model.errors import DecodeError


@pytest.mark.parametrize(
    ("name", "base", "number"),
    [("binlog.000042", "binlog", 42), ("db.log-bin.1000000", "db.log-bin", 1_000_000), ("a.b.000001", "a.b", 1)],
)
def test_names_of_files(name: str, base: str, number: int) -> None:
    assert (basename(name), file_number(name)) == (base, number)
    assert file_name(base, number) == name


@pytest.mark.parametrize(
    "name", ["", "binlog", "binlog.index", "binlog.", ".000001", "binlog.0x1", "../x.000001", "a/b.000001"]
)
def test_what_is_no_name_of_a_file(name: str) -> None:
    with pytest.raises(DecodeError, match="no name of a binary log"):
        file_number(name)
    with pytest.raises(DecodeError):
        basename(name)
