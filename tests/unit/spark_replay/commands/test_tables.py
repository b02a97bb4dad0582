"""``wormholectl snapshot`` and ``history``: what they take, before anything is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_replay.archive.store import ArchiveStore
from spark_replay.spark import session
from spark_replay.tables.folder import TableWritten, Written
from spark_replay.tables.selection import TableOptions
from tests.support.archives import put, tx, write_archive
from tests.support.cli_schema import check
from tests.support.command_line import run


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def never(*given: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "spark_session", never)
    monkeypatch.setattr(session, "check_spark", lambda: None)
    write_archive(tmp_path / "archive", {"a": [[tx(put(b"k", b"v"))]]}, dataset="shop")
    file = tmp_path / "shop.toml"
    file.write_text(
        "version = 1\n[coordinator]\nstatic = true\n[datasets.shop.archive]\nto = 'archive'\napplication = 'archive'\n"
        "[datasets.shop.copies.main.logs.db1]\nsource = 'rocksdb:///store'\n"
        "[datasets.bare.copies.main.logs.db2]\nsource = 'rocksdb:///other'\n"
        "[applications.archive]\ndataset = 'shop'\nstart = 'earliest'\n"
    )
    return file


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("snapshot orders", "--to"),
        ("history orders", "--to"),
        ("snapshot bare --to x", "archive"),
        ("snapshot none --to x", "none"),
        ("snapshot shop --to x --until soon", "--until soon"),
        ("history shop --to x --from soon", "--from soon"),
        ("history shop --to x --type price=text", "must be TABLE:NAME=TYPE"),
        ("snapshot shop --to x --field default:city", "must be TABLE:NAME=TYPE"),
    ],
)
def test_wrong_requests(words: str, told: str, config: Path) -> None:
    code, _, err = run(*words.split(), "-c", str(config))
    assert (code, told in err) == (2, True), err


@pytest.mark.parametrize("command", ["snapshot", "history"])
def test_they_hand_on_what_was_given(command: str, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def write(spark: object, store: ArchiveStore, to: str, **given: Any) -> Written:
        seen.append((spark, store.dataset, to, given))
        return Written(to, {}, {}, {}, ())

    monkeypatch.setattr(f"spark_replay.tables.{command}.write_{command}", write)
    monkeypatch.setattr(session, "spark_session", lambda name, master: (name, master))
    options = ["-t", "a", "-t", "b", "--until", "2h", "--type", "a:x=text", "--field", "b:y=int", "--master", "local"]
    code, out, err = run(command, "shop", "--to", "s3://b/x", "-c", str(config), *options, "--json")
    assert (code, json.loads(out)["dataset"]) == (0, "shop"), err
    ((spark, dataset, to, given),) = seen
    assert (spark, dataset, to) == (("wormhole tables of shop", "local"), "shop", "s3://b/x")
    assert given["tables"] == ("a", "b")
    assert given["readings"] == {"a": TableOptions({"x": "text"}), "b": TableOptions({}, {"y": "int"})}
    assert given["now"].timestamp() * 1e6 - given["until"].at_us == pytest.approx(7200e6)
    assert ("start" in given) is (command == "history")
    assert ("previous" in given) is (command == "snapshot")


def test_the_next_snapshot_is_made_of_the_previous_one(
    config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def write(spark: object, store: ArchiveStore, to: str, **given: Any) -> Written:
        seen.append((to, given["previous"]))
        tables = {"t": TableWritten("tables/t", 3), "u": TableWritten("tables/u", 1, ("1 row of u has no value",))}
        return Written(to, tables, {}, {}, ("1 row of u has no value",), ("nothing else",))

    monkeypatch.setattr("spark_replay.tables.snapshot.write_snapshot", write)
    monkeypatch.setattr(session, "spark_session", lambda name, master: None)
    monkeypatch.chdir(tmp_path)
    words = ["snapshot", "shop", "-c", str(config)]
    code, out, err = run(*words, "--to", "june", "--from", "may", "--json")
    assert code == 0, err
    assert [one["problems"] for one in check("tables-written", out)["tables"]] == [[], ["1 row of u has no value"]]
    code, out, err = run(*words, "--to", "s3://b/june", "--from", "s3://b/may")
    assert code == 0, err
    assert out.splitlines()[-2:] == ["no start for a replay of some tables: 1 row of u has no value", "nothing else"]
    assert seen == [(f"{tmp_path}/june", f"{tmp_path}/may"), ("s3://b/june", "s3://b/may")]
