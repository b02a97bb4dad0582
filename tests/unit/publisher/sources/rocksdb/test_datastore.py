from __future__ import annotations

from pathlib import Path

import pytest

from publisher.sources.rocksdb.datastore import DATASTORE
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.ports.datastore import Login, Standing

URL = "rocksdb:///var/lib/a%20b"


def test_its_urls() -> None:
    DATASTORE.check_url(URL, configured=True)
    assert DATASTORE.form("rocksdb") == "rocksdb:///absolute/path"
    assert DATASTORE.local_path(URL) == Path("/var/lib/a b")
    with pytest.raises(ValueError, match="three slashes"):
        DATASTORE.check_url("rocksdb://host/x")


def test_it_is_examined(tmp_path: Path) -> None:
    with pytest.raises((SourceUnavailable, UsageError), match="gone"):
        DATASTORE.examine(f"rocksdb://{tmp_path}/gone", tmp_path, Login())


def test_its_log_is_read_where_its_files_are() -> None:
    assert "on one host" in DATASTORE.one_host
    assert DATASTORE.standing(URL, Login(), (), failover=False) == Standing("")
