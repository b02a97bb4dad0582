"""The options of ``wormholectl audit``, and what it shows."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from spark_replay.audit import auditor
from spark_replay.audit.auditor import Audit
from spark_replay.audit.compare import AuditFinding, AuditWindow
from spark_replay.commands.show_audit import audit_object, show_audit
from spark_replay.replay import job
from spark_replay.spark import session
from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormhole.admin import admin_service
from wormholectl.shared.options import Where
from wormholectl.show.printer import print_json

# --- audit: the options of ``wormholectl audit`` ---


def test_options_reach_the_audit_and_its_exit_code_tells_of_losses(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = MagicMock()
    application = SimpleNamespace(where="", tables=(), columns=(), mask={})
    store, formats = SimpleNamespace(copy="main"), SimpleNamespace(open=lambda: None)
    asked.setting_of.return_value = SimpleNamespace(
        application=application, formats=formats, store=store, archives=lambda copy: True
    )
    asked.audit.return_value = Audit((), (AuditFinding("lost", "cache/db1", 1, 1, "s:9:0"),), (), ())
    for module, names in (
        (session, ("check_spark", "spark_session")),
        (job, ("setting_of",)),
        (auditor, ("audit", "flow_counts", "write_parquet")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(asked, name))
    monkeypatch.setattr(admin_service, "audit", lambda *_: None)
    options = ("--since", "2h", "--parquet", "a.parquet", "--json", "-c", "shop.toml", "--archive", "s3://b/a")
    code, out, _ = run("audit", "--app", "cache", *options, "--master", "local[2]")
    assert (code, json.loads(out)["whole"], admin.asked) == (1, False, [Where(coordinator="shop.toml")])
    asked.spark_session.assert_called_once_with("wormhole audit cache", "local[2]")
    asked.setting_of.assert_called_once_with(Where(coordinator="shop.toml"), "cache", ["s3://b/a"])
    asked.write_parquet.assert_called_once_with(asked.audit.return_value, "a.parquet")
    times = asked.audit.call_args.kwargs
    assert times["now_s"] - times["since_s"] == pytest.approx(7200)


def test_what_copies_served_that_the_archive_is_not_of_is_not_compared(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = admin.status
    asked: list[str] = []

    def archives(copy: str) -> bool:
        asked.append(copy)
        return False

    setting = SimpleNamespace(
        application=SimpleNamespace(where="", tables=()),
        formats=None,
        store=SimpleNamespace(copy="west"),
        archives=archives,
    )
    monkeypatch.setattr(session, "check_spark", lambda: None)
    monkeypatch.setattr(job, "setting_of", lambda *_: setting)
    code, _, err = run("audit", "--app", "cache", "-c", "shop.toml")
    assert (code, asked) == (2, [status.copy])
    assert f"the archive is of copy 'west', cache is served from {status.copy}" in err


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("--app cache --since soon", "--since"),
        ("-c shop.toml", "--app"),
        # After a time that is understood comes the next question.
        ("--app cache --since 2026-05-01T12:00:00Z", "it is not known where"),
    ],
)
def test_a_span_that_is_none_is_refused_before_anything_is_asked(
    asked: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "check_spark", lambda: None)
    code, _, err = run("audit", *asked.split())
    assert (code, said in err) == (2, True), err


# --- show audit: what ``wormholectl audit`` shows ---


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
