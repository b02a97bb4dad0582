from __future__ import annotations

from pathlib import Path

import pytest

from datastores.rocksdb.url import database_path
from publisher.sources import open_source
from wormhole.model.errors import UsageError
from wormhole.model.sharding import Sharding


def test_a_path_may_be_percent_encoded() -> None:
    assert database_path("rocksdb:///var/lib/a%20b/store") == Path("/var/lib/a b/store")


@pytest.mark.parametrize(
    "url", ["rocksdb://host/x", "rocksdb:x", "rocksdb:///", "oracle://h", "", "rocksdb:///a?b", "/a"]
)
def test_other_urls_are_refused_with_the_form_to_write(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rocksdb:///absolute/path"):
        open_source(url, log="l", state_dir=tmp_path, sharding=Sharding("log"))
