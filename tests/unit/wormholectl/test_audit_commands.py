"""The options of ``wormholectl audit``."""

from __future__ import annotations

import pytest

from tests.support.command_line import run
from wormholectl import auditing
from wormholectl.discovery import Where


def test_options_reach_the_audit_and_its_exit_code_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def audit(*given: object) -> int:
        seen.extend(given)
        return 1

    monkeypatch.setattr(auditing, "audit", audit)
    options = ("--since", "2h", "--parquet", "a.parquet", "--json", "-c", "shop.toml", "--archive", "s3://b/a")
    code, _, _ = run("audit", "--app", "cache", *options)
    assert (code, seen) == (1, [Where(coordinator="shop.toml"), "cache", ["s3://b/a"], "2h", "a.parquet", "", True])


def test_an_application_has_to_be_named() -> None:
    assert run("audit", "-c", "shop.toml")[0] == 2
