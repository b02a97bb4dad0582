"""A package with one module and one entry point, put onto the path as pip does."""

from __future__ import annotations

from pathlib import Path

import pytest


def put_package(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    group: str,
    name: str,
    code: str,
    attribute: str,
    version: str = "1.2",
) -> None:
    """Into ``folder``, which is new and comes onto the path: ``package`` is the distribution and its one module, with
    ``code``.
    """
    module = package.replace("-", "_")
    about = folder / f"{module}-{version}.dist-info"
    about.mkdir(parents=True)
    (folder / f"{module}.py").write_text(code)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:{attribute}\n")
    monkeypatch.syspath_prepend(str(folder))
