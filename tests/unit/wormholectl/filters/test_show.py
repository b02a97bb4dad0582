from __future__ import annotations

import pytest

from tests.unit.wormholectl.filters.test_effect import LOG, WANTED, log_of
from wormhole.filters import Filter, Projection
from wormhole.model.errors import DecodeError
from wormholectl.filters.effect import effect
from wormholectl.filters.show import effect_object, show_effect


def test_an_effect_for_a_person_and_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    found = effect(WANTED, LOG, 10)
    show_effect(WANTED, found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'read as  status == b"paid" and table matches "users"'
    assert [line.split("  needs ")[1] for line in lines[2:4]] == ["the value", "the table"]
    assert "marked left" in lines[4]
    assert lines[5].startswith("the last 5 updates, 1/1/0 to 1/1/")
    assert lines[6].split()[:2] == ["TABLE", "UPDATES"]
    assert [line.split()[:5] for line in lines[7:]] == [
        ["orders", "1", "0", "0", "1"],
        ["users", "4", "4", "1", "0"],
        ["all", "5", "4", "1", "1"],
    ]
    told = effect_object(WANTED, found)
    assert (told["hash"], told["normal"]) == (WANTED.hash, lines[0].removeprefix("read as  "))
    assert told["tests"][0] == {"test": 'status == b"paid"', "needs": "the value"}
    assert told["log"]["updates"] == 5
    assert [table["key_only"] for table in told["log"]["tables"]] == [0, 1]
    assert effect_object(WANTED, None)["log"] is None


def test_columns_and_masks_are_shown_with_what_they_name_and_save(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = Filter.parse(None, ["users"], projection=Projection.parse(["val*", "nane"], {"value": "null"}))
    found = effect(wanted, LOG, 10)
    users = found.tables[1]
    assert (users.kept, users.key_only, users.sent_bytes < users.bytes) == (4, 0, True)
    show_effect(wanted, found)
    out = capsys.readouterr().out
    assert out.splitlines()[3:5] == ["columns  val*, nane, and keys", "mask     value = null"]
    told = effect_object(wanted, found)
    assert (told["columns"], told["mask"]) == (["val*", "nane"], {"value": "null"})
    with pytest.raises(DecodeError, match="mask: key names key, a column of the key"):
        effect(Filter.parse(None, projection=Projection.parse([], {"key": "null"})), LOG, 10)


def test_a_log_without_updates_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = Filter.parse(None)
    show_effect(wanted, effect(wanted, log_of(), 10))
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == ("read as  true", "the log holds no updates")
