"""``wormholectl export``: what it takes, prints, and ends with. The job is one without Spark."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_replay.export import job
from spark_replay.spark import session
from tests.support.archives import KEYS, put, tx, write_archive
from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.exported import local_job
from wormhole.host import clock
from wormhole.model.errors import ArchiveUnavailable


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(session, "spark_session", lambda *given: "the session")
    monkeypatch.setattr(session, "check_spark", lambda: None)
    monkeypatch.setattr(job, "run", lambda spark, work: local_job(work))
    write_archive(tmp_path / "archive", {"a": [[tx(put(b"k", b"v"))]]}, dataset="shop")
    file = tmp_path / "shop.toml"
    file.write_text(
        "version = 1\n[coordinator]\nstatic = true\n[datasets.shop.archive]\nto = 'archive'\napplication = 'archive'\n"
        "[datasets.shop.copies.main.logs.db1]\nsource = 'rocksdb:///store'\n"
        "[applications.archive]\ndataset = 'shop'\nstart = 'earliest'\n"
    )
    return file


def catalogue(base: Path) -> list[str]:
    where = ("type=sql", f"uri=sqlite:///{base}/lake.db", f"warehouse=file://{base}/warehouse")
    return [word for one in where for word in ("--property", one)]


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_what_it_prints(format_: str, config: Path) -> None:
    base = config.parent
    to = ["--to", f"{base}/lake"] if format_ == "delta" else ["--catalog", "lake", *catalogue(base)]
    (base / "lake").mkdir()
    words = ["export", format_, "shop", *to, "-c", str(config)]
    code, out, _ = run(*words, "--dry-run", "--json")
    assert (code, check("tables-exported", out)["tables"][0]["did"]) == (0, "created")
    assert not [one for one in base.rglob("*") if "wormhole-" in str(one) or "metadata" in one.name]
    code, out, _ = run(*words, "--json")
    (told,) = check("tables-exported", out)["tables"]
    assert (code, told["did"], told["rows"], told["problem"]) == (0, "created", 1, None)
    assert told["shards"] == [{"shard": "a", "place": "1/1/100"}]
    code, out, _ = run(*words)
    assert (code, out.split()[:5]) == (0, ["TABLE", "DONE", "VERSION", "ROWS", "CHANGES"])
    assert "nothing" in out


def test_a_table_that_failed_is_in_the_list_with_the_next_step(config: Path) -> None:
    folder = config.parent / "lake/default"
    folder.mkdir(parents=True)
    (folder / "mine").touch()
    words = ["export", "delta", "shop", "--to", str(folder.parent), "-c", str(config)]
    code, out, err = run(*words, "--json")
    (told,) = check("tables-exported", out)["tables"]
    assert (code, told["problem"] in err, told["next"] in err) == (1, True, True)
    assert "failed" in run(*words)[1]


def test_a_cause_of_several_tables_is_printed_once(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = put(b"k", b"v", replace(KEYS, table="other"))
    write_archive(config.parent / "archive", {"a": [[tx(other)]]}, dataset="shop")
    (config.parent / "lake").mkdir()

    def unreachable(*_: object) -> None:
        raise ArchiveUnavailable("the archive is away", hint="mount it")

    monkeypatch.setattr(job, "run", unreachable)
    code, out, err = run("export", "delta", "shop", "--to", f"{config.parent}/lake", "-c", str(config))
    assert (code != 0, out.count("failed") >= 2, err.count("the archive is away")) == (True, True, 1), (out, err)


def test_again_and_again_until_something_lasting(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (config.parent / "lake").mkdir()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            write_archive(config.parent / "archive", {"a": [[tx(put(b"l", b"w"))]]}, dataset="shop")
        elif len(pauses) == 2:
            monkeypatch.setattr(job, "run", unreachable)
            write_archive(config.parent / "archive", {"a": [[tx(put(b"m", b"x"))]]}, dataset="shop")
        elif len(pauses) == 3:
            (config.parent / "archive").rename(config.parent / "gone")

    def unreachable(*given: Any) -> Any:
        raise ArchiveUnavailable("the disk is away", hint="wait")

    monkeypatch.setattr(clock, "SYSTEM_CLOCK", clock.Clock(pause=pause))
    words = ["export", "delta", "shop", "--to", f"{config.parent}/lake", "--every", "60s", "-c", str(config)]
    code, out, err = run(*words, "--json")
    rounds = [json.loads(line)["tables"][0] for line in out.splitlines()]
    assert [(one["did"], one["rows"]) for one in rounds] == [("created", 1), ("changed", 2), ("nothing", 0)]
    assert (code, pauses) == (2, [60.0] * 3)
    assert "the disk is away" in err
    assert DeltaTable(f"{config.parent}/lake/default").version() == 1


@pytest.mark.parametrize(("every", "seconds"), [("3", 3.0), ("1.5", 1.5), ("2m", 120.0)])
def test_a_pause_without_a_unit_is_of_seconds(
    every: str, seconds: float, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config.parent / "lake").mkdir()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        (config.parent / "archive").rename(config.parent / "gone")

    monkeypatch.setattr(clock, "SYSTEM_CLOCK", clock.Clock(pause=pause))
    words = ["export", "delta", "shop", "--to", f"{config.parent}/lake", "--every", every, "-c", str(config)]
    assert (run(*words)[0], pauses) == (2, [seconds])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("delta shop", "--to"),
        ("iceberg shop", "--catalog"),
        ("iceberg shop --catalog x --property uri", "--property uri must be NAME=VALUE"),
        ("delta shop --to x --every soon", "--every soon: must be a duration"),
        ("delta shop --to x --every 0s", "--every 0s: without a pause"),
        ("delta shop --to lake --type defalt:value=text", 'which --type names; did you mean "default"?'),
        ("delta shop --to x --every 1m --until 1/1/1", "--until ends at one place"),
        ("delta shop --to x --type price=text", "must be TABLE:NAME=TYPE"),
        ("delta none --to x", "none"),
    ],
)
def test_wrong_requests(words: str, told: str, config: Path) -> None:
    code, _, err = run("export", *words.split(), "-c", str(config))
    assert (code, told in err) == (2, True), err


@pytest.mark.parametrize(
    ("words", "module", "extra"),
    [("delta --to x", "deltalake", "delta"), ("iceberg --catalog x", "pyiceberg", "iceberg")],
)
def test_what_is_not_installed_is_named(
    words: str, module: str, extra: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == module or name.endswith(f"export.{extra}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    code, _, err = run("export", *words.split(), "-c", str(config))
    assert (code, f"wormhole-pubsub[{extra}]" in err) == (2, True), err
