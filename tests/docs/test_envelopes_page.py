"""docs/envelopes.md: its documents are what the envelopes make."""

from __future__ import annotations

import json

from sinks.envelopes import envelope_named
from subscriber_sdk import Value
from subscriber_sdk.testing import update
from tests.support.envelopes import made, updates_of
from tests.support.pages import Page

PAGE = Page("docs/envelopes.md", {})


def test_the_documents_are_those_of_the_envelopes() -> None:
    before: dict[str, Value] = {"id": 7, "status": "new"}
    updates = updates_of([update("shop.orders", key=7, before=before, after={**before, "status": "paid"})])
    shown = [json.dumps(json.loads(block)) for block in PAGE.blocks("json")]
    envelopes = (envelope_named("debezium"), envelope_named("maxwell"))
    assert shown == [json.dumps(record.value) for envelope in envelopes for record in made(envelope, updates)]
