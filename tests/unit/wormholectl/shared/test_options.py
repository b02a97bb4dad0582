from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.support.fake_admin import FakeAdmin
from wormhole.config import TlsFiles
from wormhole.model.errors import UsageError
from wormholectl.shared.options import AsJson, Where, application_names, flow_names, with_where

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
