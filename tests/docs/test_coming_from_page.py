"""The configurations, filters and programs of docs/coming-from.md are valid."""

from __future__ import annotations

import io
import json
import re
from typing import Any
from urllib.request import Request

import pytest
import yaml

from subscriber_sdk.testing import Kit, update
from tests.support.pages import Page
from wormhole.config.load import parse
from wormhole.filters.parser import parse as parse_filter

_PAGE = Page("docs/coming-from.md", {})


def test_the_configuration_of_debezium_translated_is_valid() -> None:
    text, _ = _PAGE.blocks("toml")

    application = parse(text, "shop.toml").applications["search"]

    assert list(application.tables or ()) == ["shop.users", "shop.orders"]


def test_the_sink_of_sequin_translated_is_valid_and_names_what_its_program_names() -> None:
    _, text = _PAGE.blocks("toml")
    config = parse(text, "shop.toml")
    [(name, application)] = config.applications.items()
    [sink] = yaml.safe_load(_PAGE.blocks("yaml")[0])["sinks"]

    assert config.datasets["shop"].copies["main"].logs["db1"].source.startswith("postgres://"), "Sequin reads no other"
    assert list(application.tables or ()) == sink["source"]["include_tables"]
    assert f"op in ({', '.join(json.dumps(one) for one in sink['actions'])})" in application.where
    parse_filter(application.where)
    assert list(application.columns or ()) == ["-notes"]
    assert f'application="{name}"' in _PAGE.blocks("python")[1]


@pytest.mark.parametrize("where", re.findall(r"`where = '(.+?)'`", _PAGE.text))
def test_each_filter_is_valid(where: str) -> None:
    parse_filter(where)


def test_each_program_has_a_handler() -> None:
    for program, name in zip(_PAGE.blocks("python"), ("Orders", "Billing"), strict=True):
        names: dict[str, object] = {"__name__": "application"}

        exec(compile(program, "application.py", "exec"), names)

        assert callable(getattr(names[name], "on_update", None))


def test_the_handler_in_place_of_a_webhook_sends_what_was_committed(
    wormhole_kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Request] = []

    def urlopen(request: Request, timeout: float) -> io.BytesIO:
        sent.append(request)
        return io.BytesIO()

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    names: dict[str, Any] = {"__name__": "application"}
    exec(compile(_PAGE.blocks("python")[1], "application.py", "exec"), names)
    flow = wormhole_kit.attach(names["Billing"]())
    flow.commit(update("public.orders", key=7, after={"id": 7, "status": "paid"}))

    assert flow.datamarker == flow.end
    [request] = sent
    assert request.get_method() == "POST"
    assert request.get_header("Idempotency-key")
    assert json.loads(request.data) == {"action": "insert", "record": {"id": 7, "status": "paid"}}  # type: ignore[arg-type]
