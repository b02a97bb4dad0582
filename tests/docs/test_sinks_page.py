"""docs/sinks.md: its configuration is accepted, its command runs, its document has the fields of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sinks.envelopes.wormhole import WormholeEnvelope
from sinks.kinds import kind_of, schemes
from sinks.settings import configured_sinks
from subscriber_sdk import Subscriber, Update
from subscriber_sdk.testing import Kit, update
from tests.support.pages import Page
from wormhole.config import parse

PAGE = Page("docs/sinks.md", {})


@pytest.mark.parametrize("text", PAGE.blocks("toml"), ids=lambda text: str(text).rpartition("url = ")[2].split(":")[0])
def test_a_configuration_has_one_sink_whose_keys_are_named(text: str) -> None:
    path = Path("/etc/shop.toml")
    (sink,) = configured_sinks(parse(text, str(path), folder=path.parent), path).values()
    assert sink.name == sink.application
    keys = set(type(sink.settings).model_fields) - {"application", "password_file"}
    assert {key for key in keys if f"`{key}`" not in PAGE.text} == set()


def test_the_table_has_every_kind_with_its_guarantee() -> None:
    cells = [line.strip("| ").split(" | ") for line in PAGE.text.splitlines() if line.startswith("| ")]
    head, *rows = [row for row in cells if len(row) == 6]
    assert head == ["store", "guarantee", "after a crash", "deletes", "schema changes", "verify"]
    kinds = {kind_of(scheme) for scheme in schemes()}
    assert sorted(row[:2] for row in rows) == sorted([kind.title, kind.guarantee.value] for kind in kinds)


def test_a_document_has_the_fields_of_the_page(wormhole_kit: Kit) -> None:
    documents: list[bytes | None] = []

    class Documents(Subscriber):
        async def on_update(self, update: Update) -> None:
            documents.extend(record.value for record in WormholeEnvelope().records(update))

    wormhole_kit.attach(Documents()).commit(update("shop.orders", key=7, after={"status": "paid"}))
    (shown,) = PAGE.blocks("json")
    assert list(json.loads(documents[0] or b"")) == list(json.loads(shown))
