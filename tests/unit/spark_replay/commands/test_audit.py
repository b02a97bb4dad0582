"""The options of ``wormholectl audit``."""

from __future__ import annotations

import json
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from spark_replay.audit import auditor
from spark_replay.audit.auditor import Audit
from spark_replay.audit.compare import AuditFinding
from spark_replay.replay import job
from spark_replay.spark import session
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormhole.admin import admin_service
from wormholectl.shared.options import Where


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
        ("--app cache --since 2026-05-01T12:00:00Z", "nothing says where"),
    ],
)
def test_a_span_that_is_none_is_refused_before_anything_is_asked(
    asked: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "check_spark", lambda: None)
    code, _, err = run("audit", *asked.split())
    assert (code, said in err) == (2, True), err
