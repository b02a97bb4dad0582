"""``wormholectl snapshot`` and ``history``: what they take, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_replay.spark import session
from tests.support.archives import put, tx, write_archive
from tests.support.command_line import run
from wormholectl import tables as commands


@pytest.mark.parametrize("command", ["snapshot", "history"])
def test_they_hand_on_what_was_given(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(commands, "_write", lambda *given: seen.append(given))
    options = ["-t", "a", "-t", "b", "--until", "2h", "--type", "a:x=text", "--field", "b:y=int", "--master", "local"]
    options += ["--archive", "s3://b/a", "--archive", "/srv/archive"]
    code, _, err = run(command, "orders", "--to", "x", "-c", "shop.toml", *options, "--json")
    assert code == 0, err
    start = "earliest" if command == "history" else None
    archives = ("s3://b/a", "/srv/archive")
    of = (archives, ("a", "b"), ("a:x=text",), ("b:y=int",))
    request = commands.Request("x", "orders", start, "2h", "local", *of)
    assert seen == [("shop.toml", request, True)]


@pytest.mark.parametrize("command", ["snapshot", "history"])
def test_a_folder_must_be_named(command: str) -> None:
    code, _, err = run(command, "orders")
    assert code == 2
    assert "--to" in err


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
    assert "next:" in err
