"""The pages on mass replay: their commands can be typed so, their configuration is read, and links to them are right.

``tests/integration/test_spark_tables.py`` runs the queries.
"""

from __future__ import annotations

import re

import pytest

from scripts.prepare import ROOT
from scripts.tree import headings
from tests.support.command_line import can_be_typed
from tests.support.pages import Page
from wormhole.config import parse
from wormholectl.init.texts import Project, configuration

PAGES = {name: Page(f"docs/{name}.md", {}) for name in ("replay", "archive", "tables", "export", "audit")}

_OF_INIT = configuration(Project("shop", "cache", "rocksdb:///var/lib/shop", existing=True))


@pytest.mark.parametrize("name", PAGES)
def test_every_command_can_be_typed_so(name: str) -> None:
    lines = [line for block in PAGES[name].blocks("sh") for line in block.replace("\\\n", "").splitlines()]
    typed = [line for line in lines if line.startswith("wormholectl ")]
    typed += [
        f"wormholectl replay {line.partition('submit.py ')[2]}" for line in lines if line.startswith("spark-submit ")
    ]
    assert typed
    for line in typed:
        can_be_typed(line)


def test_the_configuration_on_the_page_fits_the_file_that_init_wrote() -> None:
    (toml,) = [block for page in PAGES.values() for block in page.blocks("toml")]
    config = parse(_OF_INIT + toml, "shop.toml")
    kept = config.datasets["shop"].archive
    assert {one.dataset for one in config.applications.values()} == {"shop"}
    assert kept is not None
    assert kept.keep == 30 * 86400


@pytest.mark.parametrize("name", PAGES)
def test_what_links_to_it_finds_it(name: str) -> None:
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "deploy/systemd/wormhole-archive@.service"]
    asked = {anchor for file in pages for anchor in re.findall(rf"\b{name}\.md#([\w-]+)", file.read_text())}
    assert asked <= headings(PAGES[name].text)
    assert any(f"{name}.md" in file.read_text() for file in pages)
