"""What `wormholectl archive show|verify|expire` say, of a real archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.archive.manifest import KnownLoss
from spark_replay.archive.store import ArchiveStore
from tests.support.archives import marker_at, put, tx, write_archive
from tests.support.command_line import run

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
    lossy = store.read("b")
    assert lossy is not None
    store.commit(lossy.gap_accepted(KnownLoss(marker_at(5), "purged up to 5"), 1))
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
    assert "1 file named by no manifest" in lines[1]
    Path(store.data_path("b", "000001-000001.parquet")).unlink()
    code, lines, _ = archive("verify", "--deep")
    assert code == 1
    assert lines[1].startswith("b 000001-000001.parquet is not there")
    assert archive("verify", "--shard", "a")[0] == 0


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


def test_what_is_asked_wrongly(store: ArchiveStore, tmp_path: Path) -> None:
    assert archive("show", "other")[0] == 2
    code, _, err = archive("show", "--shard", "c")
    assert (code, "nothing is archived of shard c" in err, "choose one of: a, b" in err) == (2, True, True)
    (tmp_path / "kept" / "archive.json").unlink()
    code, _, err = archive("verify")
    assert (code, "there is no archive in" in err) == (2, True)
    Path("shop.toml").write_text(CONFIG.replace('"kept"', '"s3://key:geheim@bucket/kept"'))
    code, _, err = archive("show")
    assert (code, "must not hold a password or key" in err, "geheim" in err) == (2, True, False)
