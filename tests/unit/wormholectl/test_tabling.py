"""Snapshots and histories from the command line: a wrong request is told before Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_replay.spark import session
from tests.support.archives import put, tx, write_archive
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
