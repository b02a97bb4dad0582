from __future__ import annotations

import json

from tests.support.command_line import run


def test_a_filter_is_explained_without_a_log() -> None:
    code, out, _ = run("filters", "explain", 'not status != "paid"', "--json")
    found = json.loads(out)
    assert (code, found["normal"], found["log"]) == (0, 'status == b"paid"', None)
    code, _, err = run("filters", "explain", "a == 1", "-c", "shop.toml", "--value-format", "json")
    assert (code, "with --config" in err) == (2, True)
    code, _, err = run("filters", "explain", "status == 1", "--source", "rocksdb:///none")
    assert code == 2
    assert "column 1: the field status needs values" in err
