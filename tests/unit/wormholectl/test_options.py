from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from wormhole.config import TlsFiles
from wormhole.model.errors import UsageError
from wormholectl.admin_client import Where
from wormholectl.options import AsJson, with_where

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


def test_what_stands_before_the_verb_holds_for_it() -> None:
    assert reached("noun", "-p", "h:1", "verb", "x", "--json") == Where("h:1")
    assert reached("noun", "-p", "h:1", "verb", "x", "--json", "-p", "h:2") == Where("h:2")


def test_half_of_the_certificates_is_refused() -> None:
    with pytest.raises(UsageError, match="belong together"):
        reached("noun", "verb", "x", "--json", "--tls-ca", "a")
