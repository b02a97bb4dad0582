"""The noun `archive`: its verbs, and what they say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_replay.archive import compact as module
from spark_replay.archive.compact import Group, Merged
from spark_replay.archive.manifest import KnownLoss
from spark_replay.archive.newest_snapshot import NewestSnapshot, note_snapshot
from spark_replay.archive.store import ArchiveStore
from spark_replay.spark import session
from tests.support import cli_schema
from tests.support.archives import manifest_of, marker_at, put, tx, write_archive
from tests.support.command_line import run
from wormhole.model.errors import UsageError


def test_without_a_configuration_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORMHOLE_COORDINATOR", raising=False)
    code, _, err = run("archive", "show")
    assert code == 2
    assert "-c FILE.toml" in err


CONFIG = """version = 1
[datasets.orders.copies.main.logs.a]
source = "rocksdb:///x"
[datasets.orders.archive]
to = "kept"
keep = "1d"
[applications.archive]
dataset = "orders"
start = "latest"
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArchiveStore:
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # whoever copies a time from here into --from means the same one
    monkeypatch.chdir(tmp_path)
    Path("shop.toml").write_text(CONFIG)
    return write_archive(
        tmp_path / "kept", {"a": [[tx(put(b"k", b"v"))], [tx(put(b"k", b"w"))]], "b": [[tx(put(b"k", b"v"))]]}
    )


def archive(*words: str) -> tuple[int, list[str], str]:
    code, out, err = run("archive", *words, "-c", "shop.toml")
    return code, [" ".join(line.split()) for line in out.splitlines()], err


def test_what_is_held(store: ArchiveStore) -> None:
    store.commit(manifest_of(store, "b").gap_accepted(KnownLoss(marker_at(5), "purged up to 5"), 1))
    code, (head, a, b, after), _ = archive("show")
    assert code == 0
    assert head == "SHARD FROM TO SINCE UNTIL UPDATES SIZE FILES BEFORE IT"
    assert a.startswith("a 1/1/0 1/1/200 2023-11-14T22:13:21Z 2023-11-14T22:13:22Z 2 ")
    assert a.endswith(" 2 nothing: the log began here")
    assert b.startswith("b 1/1/0 1/1/100 ")
    assert b.endswith(" 1 not archived")
    assert after == "b 1/1/500 1/1/500 - - 0 0 B 0 purged up to 5"
    assert len(archive("show", "--shard", "a")[1]) == 2


def test_every_file(store: ArchiveStore) -> None:
    _, (head, *lines), _ = archive("show", "orders", "--files")
    assert head == "SHARD FILE FROM TO SINCE UNTIL UPDATES SIZE"
    assert [line.split()[:4] for line in lines] == [
        ["a", "000001-000001.parquet", "1/1/0", "1/1/100"],
        ["a", "000001-000002.parquet", "1/1/100", "1/1/200"],
        ["b", "000001-000001.parquet", "1/1/0", "1/1/100"],
    ]


def test_whole_and_not(store: ArchiveStore) -> None:
    store.create_data("a", "left.parquet").close()
    code, lines, _ = archive("verify")
    assert code == 0
    assert lines[0].startswith("whole: 2 shards, 3 files, 3 updates, ")
    quick = archive("verify", "--quick")[1][0]
    assert quick.startswith("whole: 2 shards, 3 files, 3 updates, ")
    assert quick.endswith("(by manifests, names and sizes; without --quick footers are read too)")
    assert "1 file named by no manifest" in lines[1]
    Path(store.data_path("b", "000001-000001.parquet")).unlink()
    code, lines, _ = archive("verify", "--deep")
    assert code == 1
    assert lines[1].startswith("b 000001-000001.parquet is not there")
    assert archive("verify", "--shard", "a")[0] == 0


def test_what_the_next_snapshot_needs_stays_until_it_is_made(store: ArchiveStore) -> None:
    assert archive("show", "--json")[0] == 0
    places = {"a": marker_at(1).order, "b": marker_at(1).order}
    note_snapshot(store, NewestSnapshot("/data/may", "2026-05-01T00:00:00Z", places), store.manifests())
    assert archive("show")[1][-1] == (
        "newest snapshot: /data/may of 2026-05-01T00:00:00Z: a up to 1/1/100, b up to 1/1/100"
    )
    code, lines, _ = archive("expire", "--dry-run")
    assert (code, lines[1:3]) == (0, ["a 1 0 0 B 0", "b 1 0 0 B 0"])
    assert lines[3] == (
        "too old, and kept for the next snapshot: 1 file of a; next: `wormholectl snapshot orders --from /data/may "
        "--to NEW`, then run this again; or --ignore-snapshot, after which no snapshot has all rows"
    )
    shown = cli_schema.check("archive-expire", "\n".join(archive("expire", "--json")[1]))
    assert [one["needed"] for one in shown["shards"]] == [["000001-000002.parquet"], []]
    shown = cli_schema.check("archive-show", "\n".join(archive("show", "--json", "--shard", "a")[1]))
    assert shown["newest_snapshot"]["continues"] is True
    assert archive("expire", "--ignore-snapshot")[1][1].startswith("a 1 0 0 B ")
    assert archive("show")[1][-1].startswith("no further snapshot can begin from it")
    assert archive("expire")[1][1].startswith("a 0 0 0 B "), "nothing is kept for what cannot be"


def test_what_goes(store: ArchiveStore) -> None:
    code, lines, _ = archive("expire", "--dry-run")
    assert (code, lines[1:3]) == (0, ["a 2 0 0 B 0", "b 1 0 0 B 0"])
    assert lines[3:] == [
        "updates are kept for 1d 0h; files stay 1d 0h after nothing names them any more",
        "nothing was changed (--dry-run)",
    ]
    assert archive("expire")[1][1:3] == ["a 2 0 0 B 2", "b 1 0 0 B 1"]
    assert archive("expire")[1][1:3] == ["a 0 0 0 B 2", "b 0 0 0 B 1"]
    assert archive("show")[1][1].startswith("a 1/1/200 1/1/200 - - 0 0 B 0 not archived")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("show other", "other"),
        ("show --shard c", "nothing is archived of shard c"),
        ("show --shard c", "choose one of: a, b"),
        ("verify --quick --deep", "exclude each other"),
        ("compact --target much --dry-run", "--target much"),
        ("compact --target 0 --dry-run", "128MiB"),
    ],
)
def test_what_is_asked_wrongly(store: ArchiveStore, words: str, told: str) -> None:
    code, _, err = archive(*words.split())
    assert (code, told in err) == (2, True), err


def test_a_place_that_cannot_be(store: ArchiveStore, tmp_path: Path) -> None:
    (tmp_path / "kept" / "archive.json").unlink()
    code, _, err = archive("verify")
    assert (code, "there is no archive in" in err) == (2, True)
    Path("shop.toml").write_text(CONFIG.replace('"kept"', '"s3://key:geheim@bucket/kept"'))
    code, _, err = archive("show")
    assert (code, "must not hold a password or key" in err, "geheim" in err) == (2, True, False)


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


def test_what_failed_and_what_was_overtaken_is_reported(
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


def test_without_spark_nothing_is_read(shop: tuple[ArchiveStore, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UsageError("Spark needs Java 17 or newer: there is no java in PATH", hint="install a Java runtime")

    monkeypatch.setattr(session, "check_spark", missing)
    code, _, told = run("archive", "compact", "-c", shop[1])
    assert code == 2
    assert "Spark needs Java" in told
