"""docs/replay.md: its commands can be typed so, its configuration is read, and what it links to is there. tests/integration/test_spark_tables.py runs its queries."""

from __future__ import annotations

import re

from scripts.prepare import ROOT
from tests.docs.test_cli_page import is_a_command
from tests.support.pages import Page
from wormhole.config import parse

PAGE = Page("docs/replay.md", {})

_DATASET = 'version = 1\n[datasets.orders.copies.main.logs.db1]\nsource = "rocksdb:///var/lib/orders"\n'


def test_every_command_on_it_can_be_typed_so() -> None:
    lines = [line for block in PAGE.blocks("sh") for line in block.splitlines()]
    typed = [line for line in lines if line.startswith("wormholectl ")]
    typed += [
        f"wormholectl replay {line.partition('submit.py ')[2]}" for line in lines if line.startswith("spark-submit ")
    ]
    assert len(typed) > 20
    for line in typed:
        is_a_command(line)


def test_its_configuration_is_right_as_it_stands() -> None:
    (toml,) = PAGE.blocks("toml")
    kept = parse(_DATASET + toml, "shop.toml").datasets["orders"].archive
    assert kept is not None
    assert kept.keep == 30 * 86400


def test_what_it_links_to_is_there() -> None:
    headings = re.findall(r"^#+ (.*)$", PAGE.text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", PAGE.text):
        page, _, anchor = target.partition("#")
        assert (ROOT / "docs" / page).exists() if page else anchor in anchors, target
    elsewhere = [*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "deploy/systemd/wormhole-archive@.service"]
    asked = [anchor for file in elsewhere for anchor in re.findall(r"replay\.md#([\w-]+)", file.read_text())]
    assert asked
    assert set(asked) <= anchors
