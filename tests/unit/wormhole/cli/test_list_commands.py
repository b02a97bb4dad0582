from __future__ import annotations

import json

import pytest

from tests.support.command_line import run
from wormhole.cli import admin_client
from wormhole.cli.admin_client import Answer, Where
from wormhole.wire.v1 import admin_pb2


@pytest.mark.parametrize("noun", ["flows", "caravans", "subscribers"])
def test_a_bare_noun_lists(noun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Where] = []

    def ask(where: Where) -> list[Answer]:
        asked.append(where)
        return [Answer("h:1", admin_pb2.PublisherStatus(dataset="d", copy="c", log="l"))]

    monkeypatch.setattr(admin_client, "ask", ask)
    code, out, err = run(noun, "-p", "h:1", "--json")
    assert (code, err, json.loads(out)[noun]) == (0, "", [])
    assert asked == [Where("h:1")]
