"""The settings and commands of docs/columns.md."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.support.pages import Page
from wormhole.config.application_filter import application_filter, read_mask_key
from wormhole.config.check import check_config
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op
from wormhole.wire.rows import decode_row, encode_row, values_of

PAGE = Page("docs/columns.md", {})


def test_the_hash_of_the_page_is_what_is_sent(tmp_path: Path) -> None:
    make, compute = PAGE.blocks("sh")
    subprocess.run(["sh", "-ec", make], cwd=tmp_path, check=True)
    key_file = tmp_path / "mask.key"
    assert key_file.stat().st_mode & 0o777 == 0o600
    said = subprocess.run(["sh", "-ec", compute], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    (settings,) = PAGE.blocks("toml")
    file = tmp_path / "shop.toml"
    file.write_text("version = 1\n" + settings)
    application = check_config(file, time.time()).applications["analytics"]
    chosen = application_filter(application, key=read_mask_key(key_file))
    key = (Column("id", "int"),)
    names = ("id", "name", "email", "phone", "city", "internal_notes")
    values = (7, "ada", "ada@example.com", "+44 1", "london", "vip")
    row = encode_row(Op.INSERT, (7,), after=values)
    expected = {
        "shop.orders": (7, "ada", said.split()[-1], None, "london"),
        "shop.users": (7, "ada", said.split()[-1]),
    }
    for table, left in expected.items():
        schema = Schema(table, key, tuple(Column(name, "text") for name in names))
        assert values_of(decode_row(chosen.projection.project_row(schema, row)[1]).after) == left
