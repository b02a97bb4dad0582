"""`wormholectl archive compact`: what is planned and told; the merging itself is tested with its module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_replay.archive import compact as module
from spark_replay.archive.compact import Group, Merged
from spark_replay.archive.store import ArchiveStore
from spark_replay.spark import session
from tests.support import cli_schema
from tests.support.archives import put, tx, write_archive
from tests.support.command_line import run
from wormhole.model.errors import UsageError


@pytest.fixture
def shop(tmp_path: Path) -> tuple[ArchiveStore, str]:
    """An archive with three small files, and the configuration that names it."""
    store = write_archive(tmp_path / "archive", {"main": [[tx(put(b"k%d" % at, b"v"))] for at in range(3)]})
    config = tmp_path / "shop.toml"
    config.write_text(f"""
version = 1
[datasets.orders.copies.main.logs.db1]
source = "rocksdb://{tmp_path}/db"
[datasets.orders.archive]
to = "{tmp_path}/archive"
application = "archiver"
[applications.archiver]
dataset = "orders"
start = "earliest"
""")
    return store, str(config)


class Merging:
    """Stands in for the module's Spark job: it merges, or says what it was told to say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *given: Merged) -> None:
        self.given = given
        self.masters: list[str | None] = []
        monkeypatch.setattr(session, "check_spark", lambda: None)
        monkeypatch.setattr(session, "spark_session", lambda name, master: self.masters.append(master))
        monkeypatch.setattr(module, "compact", self)

    def __call__(self, spark: Any, store: ArchiveStore, chosen: list[Group]) -> list[Merged]:
        return list(self.given) or [module.merge(store, group) for group in chosen]


def test_it_merges_and_tells_what_became_of_it(shop: tuple[ArchiveStore, str], monkeypatch: pytest.MonkeyPatch) -> None:
    store, config = shop
    merging = Merging(monkeypatch)
    code, told, _ = run("archive", "compact", "-c", config, "--master", "local[1]")
    assert (code, merging.masters) == (0, ["local[1]"])
    assert [line.split()[:2] for line in told.splitlines()[:2]] == [["SHARD", "FILES"], ["main", "2"]]
    assert "archive expire" in told
    assert len(store.read("main").files) == 2  # type: ignore[union-attr]
    # Nothing left to do: no Spark is started.
    code, told, _ = run("archive", "compact", "-c", config)
    assert (code, told, merging.masters) == (0, "nothing to merge: no small files adjoin\n", ["local[1]"])


def test_a_dry_run_changes_nothing_and_needs_no_spark(
    shop: tuple[ArchiveStore, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, config = shop
    monkeypatch.setattr(session, "check_spark", lambda: pytest.fail("Spark was asked for"))
    before = store.read("main")
    code, told, _ = run("archive", "compact", "orders", "-c", config, "--dry-run", "--json")
    given = cli_schema.check("archive-compact", told)
    assert (code, given["groups"][0]["files"], given["dry_run"]) == (0, 2, True)
    assert "--dry-run" in run("archive", "compact", "-c", config, "--dry-run")[1]
    assert store.read("main") == before


def test_what_failed_and_what_was_overtaken_is_told(
    shop: tuple[ArchiveStore, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Merged("main", "failed", 2, 2048, problem="x.parquet is damaged", hint="restore it")
    Merging(monkeypatch, Merged("main", "merged", 2, 100, 90), Merged("main", "overtaken", 3, 100), failed)
    code, told, _ = run("archive", "compact", "-c", shop[1])
    assert code == 1
    assert "x.parquet is damaged; next: restore it" in told
    assert "another writer was first" in told
    code, told, _ = run("archive", "compact", "-c", shop[1], "--json")
    groups = cli_schema.check("archive-compact", told)["groups"]
    assert code == 1
    assert [one["state"] for one in groups] == ["merged", "overtaken", "failed"]
    assert groups[2]["next"] == "restore it"


@pytest.mark.parametrize("target", ["much", "0"])
def test_a_target_that_is_no_size_is_refused(shop: tuple[ArchiveStore, str], target: str) -> None:
    code, _, told = run("archive", "compact", "-c", shop[1], "--target", target, "--dry-run")
    assert code == 2
    assert f"--target {target}" in told
    assert "128MiB" in told


def test_without_spark_nothing_is_read(shop: tuple[ArchiveStore, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UsageError("Spark needs Java 17 or newer: there is no java in PATH", hint="install a Java runtime")

    monkeypatch.setattr(session, "check_spark", missing)
    code, _, told = run("archive", "compact", "-c", shop[1])
    assert code == 2
    assert "Spark needs Java" in told
