"""Both formats in a service that speaks S3: the same files, commits by conditional requests or by the catalogue."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from spark_replay.export.delta import OpenDeltaTable, storage_options
from spark_replay.export.exporter import Exporter, Result
from spark_replay.export.iceberg import OpenIcebergTable
from spark_replay.export.job import ChangedRows, Work
from tests.support.archives import gone, put, tx, write_archive
from tests.support.exported import local_job
from tests.support.s3 import BUCKET
from wormhole.model.errors import UsageError


def test_delta(s3_service: str, tmp_path: Path) -> None:
    to = f"s3://{BUCKET}/lake?{s3_service}"
    store = write_archive(tmp_path / "archive", {"a": [[tx(put(b"k", b"1"), put(b"l", b"1"))]]})
    open_ = partial(OpenDeltaTable, to, "orders", "main")
    inner: list[Result] = []

    def job(work: Work) -> ChangedRows:
        made = local_job(work)
        if not inner:
            inner.extend(Exporter(store, open_, local_job).run())
        return made

    (outer,) = Exporter(store, open_, job).run()
    assert ([one.did for one in inner], outer.did, outer.problem) == (["created"], "nothing", None)
    store = write_archive(tmp_path / "archive", {"a": [[tx(put(b"k", b"2"), gone(b"l"))]]})
    inner.clear()
    (outer,) = Exporter(store, open_, job).run()
    assert ([one.did for one in inner], outer.did, outer.problem) == (["changed"], "nothing", None)
    table = DeltaTable(f"s3://{BUCKET}/lake/default", storage_options=storage_options(to))
    assert table.to_pyarrow_table().select(["key", "value"]).to_pylist() == [{"key": b"k", "value": b"2"}]
    assert table.version() == 1


def test_iceberg(s3_service: str, tmp_path: Path) -> None:
    where = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/lake.db",
        "warehouse": f"s3://{BUCKET}/warehouse",
        "s3.endpoint": f"http://{s3_service.partition('&')[0].partition('=')[2]}",
        "s3.region": "eu-west-1",
    }
    store = write_archive(tmp_path / "archive", {"a": [[tx(put(b"k", b"1"))]]})
    for value in (b"1", b"2"):
        store = write_archive(tmp_path / "archive", {"a": [[tx(put(b"k", value))]]})
        (result,) = Exporter(
            store, partial(OpenIcebergTable, load_catalog("lake", **where), "orders", "main"), local_job
        ).run()
        assert result.problem is None
    rows = load_catalog("lake", **where).load_table(("orders", "default")).scan().to_arrow()
    assert rows.select(["key", "value"]).to_pylist() == [{"key": b"k", "value": b"2"}]


@pytest.mark.parametrize(
    ("to", "options"),
    [
        ("/data/lake", {}),
        ("s3://lake/orders", {}),
        ("s3://lake/orders?region=eu-west-1", {"AWS_REGION": "eu-west-1"}),
        ("s3://lake/x?endpoint_override=h:1", {"AWS_ENDPOINT_URL": "https://h:1"}),
        ("s3://lake/x?endpoint_override=http://h:1", {"AWS_ENDPOINT_URL": "http://h:1", "AWS_ALLOW_HTTP": "true"}),
    ],
)
def test_what_a_url_says(to: str, options: dict[str, str]) -> None:
    assert storage_options(to) == options


def test_delta_lies_in_a_folder_or_in_s3() -> None:
    with pytest.raises(UsageError, match=r"Delta tables cannot lie in hdfs://host/lake"):
        OpenDeltaTable("hdfs://host/lake", "orders", "main", "t")
