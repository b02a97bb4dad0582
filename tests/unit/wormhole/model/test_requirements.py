"""What is too old is one clear line at import."""

from __future__ import annotations

import importlib
import runpy
import sys
import tomllib

import google.protobuf
import pytest

import wormhole.wire
from scripts.prepare import ROOT
from wormhole.model.errors import UsageError
from wormhole.model.requirements import OLDEST, need


def test_the_bounds_are_those_of_the_installation_and_of_the_generated_code() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {f"{name}>={version}" for name, version in OLDEST.items()} <= set(project["dependencies"])
    assert f"Protobuf Python Version: {OLDEST['protobuf']}\n" in (ROOT / "wormhole/wire/v1/push_pb2.py").read_text()
    assert project["requires-python"] == ">=3.11"


@pytest.mark.parametrize("installed", ["1.80.0", "1.80", "1.100.1", "2.0.0rc1"])
def test_a_recent_package_is_accepted(installed: str) -> None:
    need("grpcio", installed)


@pytest.mark.parametrize("installed", ["1.79.9", "0.99"])
def test_an_older_one_is_refused_with_both_versions_and_the_command(installed: str) -> None:
    with pytest.raises(UsageError, match=rf" grpcio 1.80 .* {installed} .*\[extra-missing\]") as caught:
        need("grpcio", installed)
    assert caught.value.code == "extra-missing"
    assert str(caught.value.hint).startswith("pip install 'grpcio>=1.80'")


def test_the_wire_code_is_not_imported_with_an_older_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google.protobuf, "__version__", "5.29.0")
    with pytest.raises(UsageError, match=r"needs protobuf .* and 5\.29\.0 is installed"):
        importlib.reload(wormhole.wire)


def test_nothing_is_imported_by_an_older_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with pytest.raises(ImportError, match=r"needs Python 3\.11 or later, and this is 3\.10\.13"):
        runpy.run_path(str(ROOT / "wormhole/__init__.py"))
