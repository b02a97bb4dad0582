"""`caplog.text` is plain text, also in a process where PySpark has made loggers of its own."""

from __future__ import annotations

import logging

import pytest
from pyspark.logger import PySparkLogger


@pytest.mark.parametrize("turn", ["that makes the logger", "after it"])
def test_pyspark_does_not_format_what_other_tests_log(turn: str, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("wormhole.capture").warning('next: write source = "mysql://"')
    assert 'next: write source = "mysql://"' in caplog.text
    PySparkLogger.getLogger("wormhole.capture.pyspark").propagate = False
