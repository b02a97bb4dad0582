"""docs/subscriber.md: its programs, driven without a server."""

from __future__ import annotations

from typing import Any

import pytest

from subscriber_sdk.testing import Kit, update
from tests.support.pages import Page
from wormhole.model.errors import HandlerFailed

_PAGE = Page("docs/subscriber.md", {})


def test_a_changed_table_is_reported_as_the_page_does_it(wormhole_kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [block for block in _PAGE.blocks("python") if "on_schema" in block]
    names: dict[str, Any] = {}
    exec(program, names)
    flow = wormhole_kit.attach(names["Mirror"](), retry=1)
    flow.commit(update("shop.users", key=1, after={"id": 1}))
    flow.commit(update("shop.users", key=2, after={"id": 2, "name": "Ada"}))
    assert capsys.readouterr().out.splitlines() == [
        "shop.users has the column id (int)",
        "shop.users has the column name (text)",
    ]
    with pytest.raises(HandlerFailed, match=r"the key of shop\.users changed"):
        flow.commit(update("shop.users", key={"code": "a"}, after={"id": 2, "name": "Ada"}))
