"""The configurations, filters and programs of docs/coming-from.md are valid."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from sinks.kinds import kind_of, schemes
from sinks.settings import configured_sinks
from subscriber_sdk.testing import Kit, update
from tests.support.pages import Page
from tests.support.webhook_receiver import WebhookReceiver
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
    assert list(config.sinks) == [name]


@pytest.mark.parametrize("where", re.findall(r"`where = '(.+?)'`", _PAGE.text))
def test_each_filter_is_valid(where: str) -> None:
    parse_filter(where)


def test_the_program_has_a_handler() -> None:
    (program,) = _PAGE.blocks("python")
    names: dict[str, object] = {"__name__": "application"}

    exec(compile(program, "application.py", "exec"), names)

    assert callable(getattr(names["Orders"], "on_update", None))


def test_each_kind_of_sink_that_is_named_exists() -> None:
    assert set(re.findall(r'`(?:url = )?"(\w+):', _PAGE.text)) <= set(schemes())


_SINKS = "`([a-z_]+)(?: = [^`]+)?`"
_SOURCES = {"start", "columns", "where", "mask", "tables", "source"}
"""Settings of applications and logs."""


@pytest.mark.parametrize(
    ("table", "kinds"),
    [
        ("| JDBC sink connector | here |", ["postgresql"]),
        ("| Debezium Server | here |", ["https", "kafka", "nats"]),
        ("| destination of a Sequin sink | here |", ["https", "kafka", "nats", "mysql"]),
        ("| PeerDB | here |", ["postgresql"]),
        ("| `http_client` | here |", ["https"]),
    ],
)
def test_each_setting_of_a_sink_exists(table: str, kinds: list[str]) -> None:
    rows = _PAGE.text.partition(f"\n{table}\n")[2].partition("\n\n")[0].splitlines()[1:]
    named = {name for row in rows for name in re.findall(_SINKS, row.split(" | ")[-1])}
    known = {key for kind in kinds for key in kind_of(kind).settings.model_fields}
    assert len(rows) > 5
    assert {name for name in named if not name.startswith("_")} - _SOURCES <= known


@pytest.mark.allow_blocking("the kit calls what would run in a thread in place, on its loop")
def test_the_sink_in_place_of_a_webhook_sends_what_was_committed(wormhole_kit: Kit, tmp_path: Path) -> None:
    receiver = wormhole_kit.run(WebhookReceiver().start())
    text = _PAGE.blocks("toml")[1].replace("http://127.0.0.1:8080/orders", receiver.url)
    (tmp_path / "billing.secret").write_bytes(receiver.write_secret(tmp_path).read_bytes())
    (sink,) = configured_sinks(parse(text, "shop.toml"), tmp_path / "shop.toml").values()
    opened = sink.open()
    flow = wormhole_kit.attach(opened.subscriber)
    flow.commit(update("public.orders", key=7, after={"id": 7, "status": "paid"}))

    assert flow.datamarker == flow.end
    ((item,),) = [request.body["data"] for request in receiver.requests]
    assert (item["id"], item["value"]["after"]) == ("paid-orders/shop/test:1:0/0", {"id": 7, "status": "paid"})
    wormhole_kit.run(opened.close())
    wormhole_kit.run(receiver.stop())
