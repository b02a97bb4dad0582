"""docs/relay.md: its commands run, on the folder of a publisher that does not; its settings are right."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from publisher.relay.configured import configured_relay
from tests.support.command_line import run
from tests.support.pages import Page
from tests.support.relay_scene import FilesScene
from wormhole.config import parse

PAGE = Page("docs/relay.md", {})
LOG = '[datasets.shop.copies.main.logs.db1]\nsource = "postgres://wormhole@127.0.0.1:1/shop"\n'


def test_its_commands_run_in_the_order_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.toml").write_text(f'version = 1\n[publisher]\nstate_dir = "state"\n[coordinator]\nstatic = true\n{LOG}')
    scene = FilesScene(tmp_path / "state" / "shop" / "main" / "db1" / "relay")
    scene.begin()
    scene.files.close()
    lines = [line for block in PAGE.blocks("sh") for line in block.splitlines()]
    assert len(lines) == 4
    for line in lines:
        code, out, err = run(*shlex.split(line)[1:], *([] if "--yes" in line or " trim " not in line else ["--yes"]))
        assert code == 0, (line, err)
        assert out
    assert not [*scene.folder.glob("*.wrf")]


def test_its_settings_are_right() -> None:
    [text] = PAGE.blocks("toml")
    named = '[datasets.shop.copies.main.logs.db1]\nsource = "db1"\n'
    found = configured_relay(parse(f"version = 1\n{text}\n{named}", "docs/relay.md"), "shop", "main", "db1")
    assert found is not None
    assert (found.settings.mode, found.settings.budget, found.settings.slot_budget) == ("hold", 20 << 30, 2 << 30)


def test_the_defaults_that_it_names_are_those() -> None:
    found = configured_relay(parse(f"version = 1\n{LOG}", "docs/relay.md"), "shop", "main", "db1")
    assert found is not None
    assert f"**`relay_budget`** ({found.settings.budget >> 30} GiB)" in PAGE.text
    assert f"**`slot_budget`** ({found.settings.slot_budget >> 30} GiB)" in PAGE.text
    assert f'**`on_relay_full = "{found.settings.on_full}"`** (default)' in PAGE.text
