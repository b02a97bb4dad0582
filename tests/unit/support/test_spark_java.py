"""A command gets Spark's options by its environment; without Java there is no archive to name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import spark_java


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    spark_java.options.cache_clear()
    yield
    spark_java.options.cache_clear()


def test_without_java_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert spark_java.options() == spark_java.PLAIN
    given = shlex.split(spark_java.environment()["PYSPARK_SUBMIT_ARGS"])
    assert given[:2] == ["--conf", f"spark.driver.extraJavaOptions={spark_java.PLAIN}"]
    assert "spark.sql.shuffle.partitions=2" in given
    assert given[-1] == "pyspark-shell"
