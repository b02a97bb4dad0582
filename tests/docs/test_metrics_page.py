"""The program that docs/metrics.md shows runs as written, and tells every metric of a subscriber that has no flow
yet."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.support.eventually import PATIENCE_S, until
from tests.support.pages import Page
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]


def scraped(port: int, process: subprocess.Popen[bytes]) -> str:
    def answered() -> str:
        assert process.poll() is None, "it ended"
        with suppress(urllib.error.URLError):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
                return str(answer.read().decode())
        return ""

    return until(answered, "it did not answer")


def test_a_subscriber_with_metrics_of_its_own(tmp_path: Path) -> None:
    port = free_port()
    (program,) = Page("docs/metrics.md", {"9101": str(port)}).blocks("python")
    (tmp_path / "cache.py").write_text(program)
    (tmp_path / "shop.toml").write_text(f"""
version = 1
[coordinator]
static = true
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{tmp_path}/store"
[applications.cache]
dataset = "shop"
start = "latest"
subscribers = {{ one = "127.0.0.1:{free_port()}" }}
""")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "cache.py"], cwd=tmp_path, env=environment)
    try:
        families = {family.name: family for family in text_string_to_metric_families(scraped(port, process))}
    finally:
        process.kill()
        process.wait()
    (streams,) = families["wormhole_subscriber_streams"].samples
    assert streams.labels == {"application": "cache", "subscriber": "one"}
    assert streams.value == 0
    assert "process_cpu_seconds" in families  # beside what the application has anyway
