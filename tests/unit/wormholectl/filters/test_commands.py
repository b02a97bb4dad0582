from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from tests.support.command_line import run
from tests.unit.wormholectl.filters.test_effect import LOG
from wormholectl.logs import opened


def test_a_filter_is_explained_without_a_log() -> None:
    code, out, _ = run("filters", "explain", 'not status != "paid"', "--json")
    found = json.loads(out)
    assert (code, found["normal"], found["log"]) == (0, 'status == b"paid"', None)
    code, _, err = run("filters", "explain", "a == 1", "-c", "shop.toml", "--value-format", "json")
    assert (code, "with --config" in err) == (2, True)
    code, _, err = run("filters", "explain", "status == 1", "--source", "rocksdb:///none")
    assert code == 2
    assert "column 1: the field status needs values" in err


def test_a_log_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "open_log", lambda url, login: nullcontext(LOG))
    code, out, _ = run("filters", "explain", "op == 'delete'", "--source", "rocksdb:///store", "--last", "3", "--json")
    found = json.loads(out)
    assert (code, found["schema"], found["log"]["updates"]) == (0, 1, 3)
