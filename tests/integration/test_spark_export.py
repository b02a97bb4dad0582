"""docs/export.md, as a reader follows it: Spark writes Delta and Iceberg tables, DuckDB and Spark read each version."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_replay.archive.store import ArchiveStore
from spark_replay.export import job
from tests.support.archives import Change, Tx, manifest_of, tx, write_archive
from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.pages import Page
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID = Column("id", "int")
ORDERS = Schema("shop.orders", (ID,), (ID, Column("name", "text")))


def order(op: Op, key: int, name: object, *old: int) -> Tx:
    return tx(Change(op, (key,), (key, name), old_key=old, schema=ORDERS))  # type: ignore[arg-type]


def more(base: Path, *transactions: Tx) -> ArchiveStore:
    return write_archive(base / "archive", {"db1": [list(transactions)]})


@pytest.fixture
def page(tmp_path: Path) -> Page:
    (tmp_path / "shop.toml").write_text(
        "version = 1\n[coordinator]\nstatic = true\n[datasets.orders.archive]\nto = 'archive'\n"
        "application = 'archive'\n[datasets.orders.copies.main.logs.db1]\nsource = 'mysql://ann@localhost'\n"
        "[applications.archive]\ndataset = 'orders'\nstart = 'earliest'\n"
    )
    (tmp_path / "lake").mkdir()
    return Page("docs/export.md", {"/data/": f"{tmp_path}/", "-c shop.toml": f"-c {tmp_path}/shop.toml"})


def do(block: str) -> None:
    (line,) = [line for line in block.replace("\\\n", " ").splitlines() if line.startswith("wormholectl ")]
    code, out, err = run(*shlex.split(line)[1:], "--json")
    assert (code, check("tables-exported", out)["tables"][0]["problem"]) == (0, None), err


def test_the_page_leads_to_tables_and_their_versions(
    spark: SparkSession, page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also keys that change, partly without the row: then rows are found under their former key."""
    delta, again, iceberg = page.blocks("sh")
    query, compare, in_catalogue, by_spark = page.blocks("python")
    names: dict[str, object] = {"spark": spark}
    more(tmp_path, *(order(Op.INSERT, key, f"n{key}") for key in range(1, 5)))
    do(delta)
    exec(query, names)
    assert "n4" in capsys.readouterr().out
    more(tmp_path, order(Op.UPDATE, 7, UNAVAILABLE, 1), order(Op.UPDATE, 8, "m", 2), order(Op.DELETE, 3, None))
    do(again)
    exec(compare, names)
    out = capsys.readouterr().out
    assert all(name in out for name in ("n1", "m")), out
    rows = sorted(
        tuple(row.values())[:2] for row in DeltaTable(f"{tmp_path}/lake/shop.orders").to_pyarrow_table().to_pylist()
    )
    assert rows == [(4, "n4"), (7, "n1"), (8, "m")]
    do(iceberg)
    exec(in_catalogue, names)
    exec(by_spark, names)
    assert capsys.readouterr().out.split()[-2:] == ["4", "3"]


def test_a_table_begins_from_a_snapshot(spark: SparkSession, page: Page, tmp_path: Path) -> None:
    store = more(tmp_path, order(Op.INSERT, 1, "ann"), order(Op.INSERT, 2, "bob"))
    config = ["-c", f"{tmp_path}/shop.toml"]
    assert run("snapshot", "orders", "--to", f"{tmp_path}/s", *config)[0] == 0
    more(tmp_path, order(Op.UPDATE, 1, "eve"), order(Op.INSERT, 3, "kim"))
    store.change("db1", lambda now: manifest_of(store, "db1").without_first(1))
    words = ["export", "delta", "orders", "--to", f"{tmp_path}/lake", *config]
    code, _, err = run(*words)
    assert (code, "does not hold every row" in err) == (1, True), err
    code, _, err = run(*words, "--from", f"{tmp_path}/s")
    assert code == 0, err
    rows = DeltaTable(f"{tmp_path}/lake/shop.orders").to_pyarrow_table()
    assert sorted(rows.column("name").to_pylist()) == ["bob", "eve", "kim"]
    more(tmp_path, order(Op.INSERT, 4, "x" * 20))
    code, _, err = run(*words, "--type", "shop.orders:name=decimal(4,0)")
    assert (code, "column name of shop.orders: " in err) == (2, True), err


def test_files_have_neighbouring_keys_so_that_filters_and_changes_concern_few(
    spark: SparkSession, page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 keys in five files, written in no order; then one fiftieth of them changes, side by side."""
    monkeypatch.setattr(job, "TASK_ROWS", 100)
    keys = [key * 387 % 500 for key in range(500)]
    more(tmp_path, *(order(Op.INSERT, key, f"n{key}") for key in keys))
    words = ["export", "delta", "orders", "--to", f"{tmp_path}/lake", "-c", f"{tmp_path}/shop.toml", "--json"]
    assert run(*words)[0] == 0
    assert len(_with_key(tmp_path, 250, 259)) <= 2
    more(tmp_path, *(order(Op.UPDATE, key, "new") for key in range(250, 260)))
    changed = check("tables-exported", run(*words)[1])["tables"][0]
    assert (changed["rows"], changed["files_removed"] <= 2) == (500, True)
    assert len(_with_key(tmp_path, 250, 259)) <= 2
    rows = DeltaTable(f"{tmp_path}/lake/shop.orders").to_pyarrow_table().sort_by("id")
    assert rows.column("id").to_pylist() == list(range(500))
    assert rows.column("name").to_pylist()[249:261] == ["n249", *["new"] * 10, "n260"]


def _with_key(base: Path, first: int, last: int) -> list[int]:
    """The files that a reader of these keys has to open, of those of the newest version."""
    actions = pa.table(DeltaTable(f"{base}/lake/shop.orders").get_add_actions(flatten=True))
    bounds = list(zip(actions.column("min.id").to_pylist(), actions.column("max.id").to_pylist(), strict=True))
    assert len(bounds) >= 4
    return [i for i, (least, most) in enumerate(bounds) if least <= last and most >= first]
