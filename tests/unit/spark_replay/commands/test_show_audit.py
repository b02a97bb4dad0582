"""What ``wormholectl audit`` shows."""

from __future__ import annotations

from typing import Any

import pytest

from spark_replay.audit.auditor import Audit
from spark_replay.audit.compare import AuditFinding, AuditWindow
from spark_replay.commands.show_audit import audit_object, show_audit
from tests.support.cli_schema import check
from wormholectl.show.printer import print_json

WINDOW = 2_833_333


def window(number: int = WINDOW, **more: Any) -> AuditWindow:
    given: dict[str, Any] = {
        "flow": "cache/db1", "window": number, "archived": 3, "delivered": 2, "processed": 4, "set_aside": 0, "duplicates": 2,  # noqa: E501
        "lost": 1, "unprocessed": 0, "unaudited": 0, "pending": 0, "state": "complete", "complete_s": 5.0,
    }  # fmt: skip
    return AuditWindow(**(given | more))


FINDINGS = (
    AuditFinding("lost", "cache/db1", WINDOW, 1, "s:9:0"),
    AuditFinding("unprocessed", "cache/db1", 0, 2, "", "between a and b"),
)


def test_every_output_is_as_the_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    odd = window(0, processed=None, duplicates=None, state="not archived", complete_s=float("inf"))
    print_json(audit_object("cache", Audit((window(), odd), FINDINGS, ("cache/db2",), ("cache/db3",))))
    told = check("audit", capsys.readouterr().out)
    assert [one["begin"] for one in told["windows"]] == ["2023-11-14T22:10:00Z", None]
    assert (told["whole"], told["windows"][1]["complete_s"]) == (False, None)


def test_a_person_reads_what_is_lost_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    odd = window(0, processed=None, duplicates=None, state="open", unaudited=3, replayed=7, pending=2, complete_s=float("inf"))  # fmt: skip  # noqa: E501
    show_audit("cache", Audit((window(), odd), FINDINGS, ("cache/db2",), ("cache/db3",)))
    out = capsys.readouterr().out
    assert "cache/db1, 2023-11-14 22:10: update s:9:0: lost: archived, and never delivered\n" in out
    assert "cache/db1, no time: 2 updates: lost: delivered, and no callback returned (between a and b)" in out
    assert "open, 7 replayed in part, 3 unaudited, 2 to come" in out
    assert "cache/db2 has no delivery counts" in out
    assert "cache/db3: the archive has nothing" in out
    assert "nothing is lost" not in out


def test_duplicates_and_repairs_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    windows = (window(lost=0, duplicates=4047), window(lost=0, duplicates=0))
    repaired = AuditFinding("repaired", "cache/db1", WINDOW, 1, "", "between a and b")
    show_audit("cache", Audit(windows, (repaired,), (), ()))
    out = capsys.readouterr().out
    assert "4047" in out
    assert "1 updates: repaired by a replay: delivered, and no callback had returned (between a and b)" in out
    assert out.endswith("nothing is lost\n")


@pytest.mark.parametrize("state", ["unaudited", "replayed"])
def test_what_could_not_be_compared_is_not_called_whole(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_audit("cache", Audit((window(lost=0, state=state, **{state: 1100}),), (), (), ()))
    out = capsys.readouterr().out
    assert f"{state}, 1100" in out
    assert out.endswith("nothing is lost of what could be compared\n")
