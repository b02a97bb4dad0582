"""One Spark session for all tests of a process: starting one takes seconds and most of a gigabyte.

Real Spark on two threads, without its web page, listening on loopback only. Its JVM ends when the standard input that
this process holds open does, however that comes about.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark_replay.spark.session import spark_session
from wormhole.model.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MASTER = "local[2]"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this test process, made by the first test that asks for it."""
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        # Two hundred tasks of nothing take longer than the work, and so do plans made over and code made for a few
        # rows.
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.default.parallelism": "2",
        # On a busy machine Python needs longer than 15 s to start and to connect back.
        "spark.python.authenticate.socketTimeout": "300s",
        "spark.log.level": "ERROR",
        # Nothing runs long enough here to pay for the optimizing compiler: without it, a third less processor time.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    try:
        session = spark_session("wormhole tests", MASTER, settings)
    except UsageError as error:
        pytest.skip(str(error))
    yield session
    session.stop()
