"""The README's ten minutes, as a new reader has them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import Page, Reader, own_port
from tests.support.rocks_writer import RocksWriter


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RocksWriter]:
    started = RocksWriter(tmp_path / "shop")
    yield started
    started.exit()


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page("README.md", {"/var/lib/shop": str(tmp_path / "shop")})


def test_ten_minutes_with_your_own_store(tmp_path: Path, writer: RocksWriter, page: Page) -> None:
    reader = Reader(tmp_path)
    writer.put(b"user:1", b"Ada")

    assert "0 problems" in reader.shell(page.command("doctor"))
    with reader.running("sh", "-c", f"exec {page.command('tail')}") as tail:
        tail.says("tailing ")
        writer.write([("put", "default", b"user:1", b"Eve"), ("delete", "default", b"user:1")])
        assert tail.says("user:1").endswith("delete        default  user:1\n")

    (tmp_path / "cache.py").write_text(*page.blocks("python"))
    reader.shell(page.command("init rocksdb"))
    own_port(tmp_path)
    assert "2 passed" in reader.shell(page.line("pytest "))
    with (
        reader.running(sys.executable, "cache.py") as application,
        reader.running("sh", "-c", f"exec {page.command('up -f')}") as up,
    ):
        up.says("flows given away")
        writer.put(b"user:7", b"Bob")
        writer.write([("delete", "default", b"user:7")])
        application.says("delete b'user:7'")
        assert application.printed == ["upsert b'user:7'\n", "delete b'user:7'\n"]
        serves = "[info     ] publisher shop/main/db1@"  # `run` set logging up
        # That line gathers shards for a while: it may come later, and a busy machine splits it.
        served = [line for line in application.said if "serves shards" in line]
        assert serves in (served[0] if served else application.says("serves shards"))
        assert reader.shell(page.command("flows")).count(" live ") == 4
        assert "caravans, subscribers, lag, why-lag, top" in page.text
        for listing in ("caravans", "subscribers", "lag cache", "why-lag cache/db1.0of4"):
            assert "cache" in reader.shell(f"wormholectl {listing} -c shop.toml")
