"""One Spark session for all tests of a process: starting one takes seconds and most of a gigabyte.

Real Spark on two threads, without its web page, listening on loopback only. Its JVM ends when the standard input that
this process holds open does, however that comes about.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark_replay.spark.scratch import set_variables
from spark_replay.spark.session import check_spark, spark_session
from tests.support.spark_java import PYTHON, options, settings
from wormhole.model.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MASTER = "local[2]"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this test process, made by the first test that asks for it."""
    folder = tmp_path_factory.mktemp("spark")
    try:
        check_spark()
        given = settings(folder) | {"spark.driver.extraJavaOptions": options()}
        with set_variables(PYTHON):
            session = spark_session("wormhole tests", MASTER, given)
    except UsageError as error:
        pytest.skip(str(error))
    yield session
    session.stop()
