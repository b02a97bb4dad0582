"""The noun `archive`: its verbs, and what they say of themselves."""

from __future__ import annotations

import pytest

from tests.support.command_line import run


@pytest.mark.parametrize("verb", ["show", "verify", "expire"])
def test_each_verb_has_help_with_an_example(verb: str) -> None:
    code, out, _ = run("archive", verb, "--help")
    assert code == 0
    assert f"wormholectl archive {verb}" in out
    assert "--json" in out


def test_without_a_configuration_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORMHOLE_COORDINATOR", raising=False)
    code, _, err = run("archive", "show")
    assert code == 2
    assert "-c FILE.toml" in err
