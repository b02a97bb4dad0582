"""docs/tls.md, run from its first command to its last."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.pages import Page, Reader
from tests.support.ports import free_port
from tests.support.rocks_writer import RocksWriter


def test_certificates_to_updates(tmp_path: Path) -> None:
    page = Page(
        "docs/tls.md",
        {
            "/var/lib/shop/store": str(tmp_path / "store"),
            "/var/lib/wormhole": str(tmp_path / "state"),
            "127.0.0.1:7400": f"127.0.0.1:{free_port()}",
            "127.0.0.1:7401": f"127.0.0.1:{free_port()}",
        },
    )
    reader = Reader(tmp_path)
    writer = RocksWriter(tmp_path / "store")
    try:
        certificates, _ = page.blocks("sh")
        reader.shell(certificates)
        (program,), (configuration,) = page.blocks("python"), page.blocks("toml")
        (tmp_path / "printer.py").write_text(program)
        (tmp_path / "shop.toml").write_text(configuration)
        with (
            reader.running(sys.executable, "printer.py") as application,
            reader.running("wormholectl", "publisher", "run", "-c", "shop.toml") as publisher,
        ):
            publisher.says("to cache-1 in epoch 1")
            writer.put(b"user:7", b"Bob")
            application.says("upsert b'user:7'")
            assert " live " in reader.shell(page.command("flows"))
    finally:
        writer.exit()
