"""What commands share: options, certificates, questions, errors and changes of a flow."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import typer
from typer.testing import CliRunner

from tests.support.certificates import Authority
from tests.support.fake_admin import FakeAdmin
from tests.support.publisher_status import status
from wormhole.admin import Admin
from wormhole.admin.admin_service import Answer
from wormhole.config import TlsFiles
from wormhole.coordination.current_user import current_user
from wormhole.host.trust import Trust
from wormhole.model.errors import (
    CoordinationLost,
    DecodeError,
    Fatal,
    FilterError,
    SourceUnavailable,
    UsageError,
    WormholeError,
)
from wormholectl.doctor.installation import Survey, judge
from wormholectl.exit_codes import BROKEN, UNREACHABLE, WRONG
from wormholectl.shared.certificates import name_in, named, report_on
from wormholectl.shared.confirm import confirm
from wormholectl.shared.errors import DEBUG, GuardedGroup, exit_code, message, needs
from wormholectl.shared.flow_change import change_flow
from wormholectl.shared.options import AsJson, Where, application_names, flow_names, with_where

# --- options ---


TLS = ["--tls-cert", "c", "--tls-key", "k", "--tls-ca", "a"]


def reached(*arguments: str) -> Where:
    """What a verb below a noun gets as its ``where``."""
    got: list[Where] = []
    app = typer.Typer()
    noun = typer.Typer(invoke_without_command=True)
    app.add_typer(noun, name="noun")

    @noun.callback()
    @with_where
    def bare(where: Where, as_json: AsJson = False) -> None:
        """List."""

    @noun.command()
    @with_where
    def verb(name: str, where: Where, as_json: AsJson = False) -> None:
        """Change."""
        assert name == "x"
        assert as_json
        got.append(where)

    CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return got[0]


def test_the_options_become_one_value() -> None:
    files = TlsFiles(cert=Path("c"), key=Path("k"), ca=Path("a"))
    assert reached("noun", "verb", "x", "--json", "-c", "s.toml", *TLS, "--tls-name", "n") == Where(
        "", "s.toml", files, "n"
    )
    assert reached("noun", "verb", "x", "--json") == Where()


def test_options_before_the_verb_hold_for_it() -> None:
    assert reached("noun", "-p", "h:1", "verb", "x", "--json") == Where("h:1")
    assert reached("noun", "-p", "h:1", "verb", "x", "--json", "-p", "h:2") == Where("h:2")


def test_half_of_the_certificates_is_refused() -> None:
    with pytest.raises(UsageError, match="belong together"):
        reached("noun", "verb", "x", "--json", "--tls-ca", "a")


@dataclass
class Context:
    params: dict[str, Any]
    parent: Context | None = None


def test_names_come_from_the_publishers(admin: FakeAdmin) -> None:
    context = Context({"coordinator": None}, Context({"coordinator": "shop.toml"}))
    assert flow_names(context, "ca") == ["cache/db1"]
    assert flow_names(context, "") == ["cache/db1", "mail/db1"]
    assert application_names(context, "m") == ["mail"]
    assert admin.asked[0] == Where("", "shop.toml")


def test_when_nobody_answers_there_is_nothing_to_offer() -> None:
    assert flow_names(Context({"publisher": "127.0.0.1:1"}), "") == []
    assert flow_names(Context({}), "") == []


# --- certificates: the name that ``doctor`` prints for the option ``publishers``, from a real certificate ---


async def test_the_name_comes_from_the_certificate_that_the_publisher_shows(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine, theirs = authority.issue("maria"), authority.issue("db1-publisher")
    other = Authority(tmp_path / "other").issue("maria")
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", (await asyncio.to_thread(Trust, theirs)).server_credentials())
    await server.start()
    address = f"127.0.0.1:{port}"
    answers = [
        Answer(address, status("db1"), "", mine),
        Answer("127.0.0.1:1", status("db2"), "", mine),  # it went since
        Answer(f"localhost:{port}", status("db3"), "", other),  # another authority signed it
        Answer(address, status("db4")),  # without TLS
        Answer("unix:/run/wormhole.sock", status("db5"), "", mine),
    ]
    try:
        assert await asyncio.to_thread(named, answers) == {address: "db1-publisher"}
    finally:
        await server.stop(None)


async def test_a_revoked_certificate_is_no_name_to_write_down(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine, theirs = authority.issue("maria"), authority.issue("db1-publisher")
    crl = authority.revoke(theirs.cert)
    server = grpc.aio.server()
    trust = await asyncio.to_thread(Trust, theirs)
    address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', trust.server_credentials())}"
    await server.start()
    try:
        answer = Answer(address, status("db1"), "", mine.model_copy(update={"crl": crl}))
        assert await asyncio.to_thread(named, [answer]) == {}
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("common", "hosts", "name"),
    [
        (["db1"], ["h", "db1"], "db1"),
        (["Shop Inc"], ["localhost", "h"], "h"),
        (["db1"], [], "db1"),
        ([], [], ""),
    ],
)
def test_which_name_of_a_certificate(common: list[str], hosts: list[str], name: str) -> None:
    assert name_in(common, hosts) == name


def test_names_dates_issuer_and_lists(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    found = report_on(authority.issue("db1", crl=authority.revoke(authority.issue("gone").cert)))
    assert found is not None
    cert, ca, crl = found.facts
    assert cert.startswith("tls.cert: CN=db1 (serial ")
    assert "names db1, localhost, 127.0.0.1, issued by CN=test-ca, valid 20" in cert
    assert ca.startswith("tls.ca: CN=test-ca (serial ")
    assert crl.startswith("tls.crl: list of CN=test-ca, 1 certificates, of 20")
    assert found.faults == ()
    report = judge(Survey("shop.toml", "1", tls=found))
    assert [one.what for one in report.findings if one.check == "certificates"] == [cert, ca, crl]


def test_what_is_wrong_is_a_problem_with_a_next_step(tmp_path: Path) -> None:
    expired = Authority(tmp_path).issue("db1", days=(-9, -2))
    found = report_on(expired)
    assert found is not None
    assert found.facts[-1] == "tls.crl: none, so no certificate is revoked"
    (fault,) = found.faults
    assert "CN=db1" in fault
    assert "expired on 20" in fault
    problems = [one for one in judge(Survey("shop.toml", "1", tls=found)).findings if one.what == fault]
    assert problems[0].next_step
    expired.key.unlink()
    found = report_on(expired)
    assert found is not None
    assert "cannot be read: No such file" in found.faults[0]
    assert report_on(None) is None


# --- confirm ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "goes_on"), [("y\n", True), ("Yes\n", True), ("\n", False), ("n\n", False), ("", False)]
)
def test_only_a_yes_goes_on(
    typed: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    if goes_on:
        confirm("Really?", False)
    else:
        with pytest.raises(typer.Exit) as end:
            confirm("Really?", False)
        assert end.value.exit_code == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "Really? [y/N] " + ("" if goes_on else "nothing was changed\n"))


def test_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match=r"\[needs-confirmation\].*--yes"):
        confirm("Really?", False)
    confirm("Really?", True)


# --- errors ---


def app_raising(error: BaseException) -> typer.Typer:
    app = typer.Typer(cls=GuardedGroup, pretty_exceptions_enable=False)

    @app.callback()
    def root() -> None:
        """Makes it a group."""

    @app.command()
    def fail() -> None:
        """Raise."""
        print("before")
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (FilterError("no", hint="do this"), WRONG, "error [filter-invalid]: no\n  next: do this\n"),
        (UsageError("no", hint="GRANT x TO y;"), WRONG, "error [wrong-request]: no\n  next:\n    GRANT x TO y;\n"),
        (
            SourceUnavailable("gone", position="1/2/3"),
            UNREACHABLE,
            "error [source-unavailable]: gone (position 1/2/3)\n",
        ),
        (CoordinationLost("away"), UNREACHABLE, "error [coordination-lost]: away\n"),
        (DecodeError("bad"), BROKEN, "error [log-undecodable]: bad\n"),
        (ValueError("oops"), BROKEN, "error [internal-error]: unexpected ValueError: oops\n"),
        (RuntimeError("oops"), BROKEN, "error [internal-error]: unexpected RuntimeError: oops\n"),
        (BrokenPipeError("oops"), BROKEN, "error [internal-error]: unexpected BrokenPipeError: oops\n"),
        (ConnectionResetError("oops"), BROKEN, "error [internal-error]: unexpected ConnectionResetError: oops\n"),
        (KeyboardInterrupt(), 130, ""),
        (typer.Exit(7), 7, ""),
    ],
)
def test_every_error_is_one_message_and_one_exit_code(
    error: BaseException, code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DEBUG, raising=False)
    result = CliRunner().invoke(app_raising(error), ["fail"])
    assert (result.exit_code, result.stdout) == (code, "before\n")
    assert result.stderr.startswith(says)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("read", "code"), [(True, BROKEN), (False, 0)])
def test_a_broken_pipe_is_no_error_only_when_nobody_reads_stdout(
    read: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another connection breaks with the same error."""
    end, stdout = os.pipe()
    with open(end, "rb") as reader, open(stdout, "w") as writer:
        if not read:
            reader.close()
        monkeypatch.setattr(sys, "stdout", writer)
        with pytest.raises(SystemExit) as ended:
            app_raising(BrokenPipeError("oops"))(["fail"])
        monkeypatch.undo()
    assert ended.value.code == code
    assert ("BrokenPipeError: oops" in capsys.readouterr().err) == read


def test_the_place_of_an_error_is_shown_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEBUG, "1")
    result = CliRunner().invoke(app_raising(UsageError("no")), ["fail"])
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error [wrong-request]: no\n")


def test_wrong_options_are_the_callers_move() -> None:
    result = CliRunner().invoke(app_raising(ValueError()), ["fail", "--colour"])
    assert result.exit_code == WRONG
    assert "--colour" in result.stderr


def test_the_hint_stays_in_the_error() -> None:
    error = WormholeError("no", hint="do this")
    assert message(error) == "error [failed]: no\n  next: do this"
    assert error.hint == "do this"
    assert exit_code(error) == BROKEN


def test_what_is_not_installed_is_named_with_its_extra() -> None:
    with (
        pytest.raises(UsageError, match=r"wormhole_no_such_part.*wormhole-pubsub\[publisher\]"),
        needs("publisher"),
    ):
        importlib.import_module("wormhole_no_such_part")


@pytest.mark.parametrize("arguments", [["flows", "--help"], ["--version"]], ids=" ".join)
def test_output_of_the_options_that_no_subscriber_takes(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "wormholectl", *arguments]
    end, output = os.pipe()
    os.close(end)
    unread = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    os.close(output)
    assert (unread.returncode, unread.stderr) == (0, "")
    with open("/dev/full", "w") as full:
        unwritten = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert unwritten.returncode == BROKEN
    assert unwritten.stderr.startswith(
        "error [file-unwritable]: nothing more can be written: No space left on device\n  next: make room"
    )
    assert "Traceback" not in unwritten.stderr


# --- flow change ---


ADMIN = Admin(Where("h:7"))


def test_without_a_terminal_it_is_shown_and_not_done(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="--yes"):
        change_flow("Pause?", lambda preview: ADMIN.pause("cache/db1", preview=preview), False, False)
    assert [one.preview for one in admin.requests] == [True]
    first, head, row, note = capsys.readouterr().out.splitlines()
    assert first == "cache/db1 of shop/main/db1 would change:"
    assert head.split() == ["BEFORE", "AFTER"]
    assert row.split() == ["paused", "-", current_user()]
    assert note == "note: it was asked nicely"


def test_with_a_yes_it_is_done_and_shown(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    change_flow("Pause?", lambda preview: ADMIN.pause("cache/db1", preview=preview), True, False)
    assert [(one.preview, one.who, one.flow) for one in admin.requests] == [(False, current_user(), "cache/db1")]
    assert capsys.readouterr().out.startswith("cache/db1 of shop/main/db1 was changed:")


def test_for_programs(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        change_flow("Pause?", lambda preview: ADMIN.pause("cache/db1", preview=preview), False, True)
    planned = json.loads(capsys.readouterr().out)
    change_flow("Pause?", lambda preview: ADMIN.pause("cache/db1", preview=preview), True, True)
    done = json.loads(capsys.readouterr().out)
    assert (planned["changed"], done["changed"]) == (False, True)
    assert (done["before"]["paused"], done["after"]["paused"]) == (None, current_user())
    assert (done["flow"], done["publisher"], done["notes"]) == ("cache/db1", "shop/main/db1", ["it was asked nicely"])


def test_a_flow_that_nobody_has_and_a_refusal_change_nothing(admin: FakeAdmin) -> None:
    with pytest.raises(UsageError, match="did you mean cache/db1"):
        change_flow("Pause?", lambda preview: ADMIN.pause("cahce/db1", preview=preview), True, False)
    assert admin.requests == []
    admin.refusal = Fatal("it is paused already")
    with pytest.raises(Fatal, match="paused already"):
        change_flow("Pause?", lambda preview: ADMIN.pause("cache/db1", preview=preview), False, False)
    assert [one.preview for one in admin.requests] == [True]


def test_a_record_that_no_publisher_lists_is_forgotten_where_its_log_is(admin: FakeAdmin) -> None:
    """Its application is configured no longer."""
    admin.refusal = UsageError("there is no record of old/db1.users")
    with pytest.raises(UsageError, match="no record of"):
        change_flow("Forget?", lambda preview: ADMIN.forget("old/db1.users", preview=preview), True, False)
    assert admin.requests[0].flow == "old/db1.users"
    with pytest.raises(UsageError, match="there is no flow"):
        change_flow("", lambda preview: ADMIN.forget("old/db2", preview=preview), False, False)
    with pytest.raises(UsageError, match="there is no flow"):
        change_flow("", lambda preview: ADMIN.pause("old/db1.users", preview=preview), True, False)
    assert len(admin.requests) == 1
