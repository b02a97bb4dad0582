"""docs/sinks.md and the page of each kind: their configuration is accepted, their commands can be typed, what they show
has the fields of ours.
"""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from http.server import HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from scripts.prepare import ROOT
from sinks.envelopes.wormhole import WormholeEnvelope
from sinks.kinds import kind_of, schemes
from sinks.records import Record
from sinks.settings import configured_sinks
from sinks.webhook.kind import KIND as WEBHOOK
from sinks.webhook.message import Origin, message
from sinks.webhook.settings import WebhookSettings
from subscriber_sdk import HandlerFailed, Subscriber, Update
from subscriber_sdk.testing import Kit, update
from tests.support.command_line import can_be_typed
from tests.support.pages import Page
from tests.support.webhook_receiver import SECRET, WebhookReceiver
from wormhole.config import parse

PAGE = Page("docs/sinks.md", {})
HOOKS = Page("docs/sink-webhook.md", {})
KINDS = [Page(f"docs/{path.name}", {}) for path in sorted(ROOT.glob("docs/sink-*.md")) if path.name != "sink-types.md"]


def test_the_configuration_is_one() -> None:
    text = "\n".join(block for page in (PAGE, *KINDS) for block in page.blocks("toml"))
    path = Path("/etc/shop.toml")
    sinks = configured_sinks(parse(text, str(path), folder=path.parent), path)
    assert sinks["lines"].application == "lines"
    assert {sink.kind for sink in sinks.values()} == {kind_of(scheme) for scheme in schemes()}
    lacking = {}
    for page in KINDS:
        own = [sinks[name] for block in page.blocks("toml") for name in tomllib.loads(block)["sinks"]]
        keys = {key for sink in own for key in type(sink.settings).model_fields}
        lacking[page.text.partition("\n")[0]] = {key for key in keys if f"`{key}`" not in page.text + PAGE.text}
        assert keys
    assert not any(lacking.values()), lacking


def test_its_commands_can_be_typed() -> None:
    text = "\n".join(PAGE.blocks("sh")).replace("\\\n", "")
    lines = [line for line in text.splitlines() if line.startswith("wormholectl ")]
    assert len(lines) >= 5
    for line in lines:
        can_be_typed(line)


def test_the_table_has_every_kind_with_its_guarantee() -> None:
    text = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", PAGE.text)
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    head, *rows = [row for row in cells if len(row) == 6]
    assert head == ["store", "guarantee", "repeated after a crash", "deleted rows", "schema changes", "verify"]
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


@pytest.mark.allow_blocking("the kit calls what would run in a thread in place, on its loop")
def test_the_receiver_of_webhooks_verifies_and_drops_repetitions(
    wormhole_kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    secret_file = WebhookReceiver().write_secret(tmp_path)
    names: dict[str, Any] = {"__name__": "receiver"}
    exec(compile(HOOKS.blocks("python")[0], "receiver.py", "exec"), names)
    monkeypatch.setattr(names["Hook"], "log_message", lambda *_: None)
    server = HTTPServer(("127.0.0.1", 0), names["Hook"])
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/"
        settings = WebhookSettings.model_validate({"url": url, "secret_file": str(secret_file)})
        sink = WEBHOOK.open("billing", settings)
        flow = wormhole_kit.attach(sink.subscriber)
        flow.commit(update("shop.orders", key=7, after={"status": "paid"}))
        flow.crash_and_redeliver()
        assert flow.datamarker == flow.end
        secret_file.write_text(f"{SECRET[:-1]}A\n")
        with pytest.raises(HandlerFailed) as failed:
            flow.commit(update("shop.orders", key=8))
        assert getattr(failed.value.__cause__, "code", None) == "login-refused"
        wormhole_kit.run(sink.close())
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    with contextlib.closing(names["STORE"]) as store:
        ((id_, effect),) = store.execute("SELECT id, effect FROM effects")
    assert (id_, json.loads(effect)["after"]) == ("billing/shop/test:1:0/0", {"status": "paid"})


def test_a_request_has_the_fields_of_the_page() -> None:
    shown = json.loads(HOOKS.blocks("json")[0])
    origin = Origin("billing", "db1", 3, 0)
    record = Record("7f3e5d1c:42:0", "7f3e5d1c:42:0", "shop.orders", b"[7]", b'{"op": "update"}')
    assert json.loads(message(origin, [record]).body) == shown
