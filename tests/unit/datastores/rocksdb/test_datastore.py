from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from datastores.rocksdb.datastore import DATASTORE
from datastores.rocksdb.url import database_path
from tests.support.rocks_writer import RocksWriter
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.ports.datastore import Login, Standing

URL = "rocksdb:///var/lib/a%20b"


def test_its_urls() -> None:
    DATASTORE.check_url(URL, configured=True)
    assert DATASTORE.form("rocksdb") == "rocksdb:///absolute/path"
    assert DATASTORE.local_path(URL) == Path("/var/lib/a b")


@pytest.mark.parametrize(("check", "error"), [(DATASTORE.check_url, ValueError), (database_path, UsageError)])
@pytest.mark.parametrize(
    "url", ["rocksdb://host/x", "rocksdb:x", "rocksdb:///", "oracle://h", "", "rocksdb:///a?b", "/a"]
)
def test_other_urls_are_refused_with_the_form_to_write(
    url: str, check: Callable[[str], object], error: type[Exception]
) -> None:
    with pytest.raises(error, match="rocksdb:///absolute/path"):
        check(url)


def test_it_is_examined(tmp_path: Path) -> None:
    with pytest.raises((SourceUnavailable, UsageError), match="gone"):
        DATASTORE.examine(f"rocksdb://{tmp_path}/gone", tmp_path, Login())


def test_its_log_is_read_where_its_disk_is(tmp_path: Path) -> None:
    def standing(*delivered: str) -> Standing:
        return DATASTORE.standing(f"rocksdb://{tmp_path}/db", Login(), delivered, failover=False)

    away = standing("7")
    assert (away.server, away.ready, away.lacking) == ("", False, "")
    assert away.problem.text == f"there is no directory {tmp_path}/db"
    assert "attach the disk" in away.problem.hint
    writer = RocksWriter(tmp_path / "db")
    try:
        for number in range(5):
            writer.put(b"%d" % number, b"x")
        here = standing("", "3", "5")
        assert here == Standing((tmp_path / "db" / "IDENTITY").read_text().strip())
        assert standing("3", "9").lacking == "sequence numbers 6 to 9"
        writer.flush()  # the log is deleted, and the tables have it
        assert standing("5") == here
        files = sorted(one.name for one in (tmp_path / "db").iterdir())
        assert standing("9").lacking == "sequence numbers 6 to 9"
        assert sorted(one.name for one in (tmp_path / "db").iterdir()) == files, "it only reads"
    finally:
        writer.exit()
    (tmp_path / "db" / "CURRENT").unlink()
    assert standing("5").problem.text == f"{tmp_path}/db is no RocksDB database: it has no CURRENT file"
