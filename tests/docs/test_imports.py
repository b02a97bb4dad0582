"""What the pages and the examples import are public names: an application that copies them keeps working."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from scripts.prepare import PACKAGES, ROOT
from tests.support.pages import Page

PUBLIC = {
    "subscriber_sdk": "applications",
    "subscriber_sdk.metrics": "applications that export metrics",
    "subscriber_sdk.models": "modules that `wormholectl models` writes, and classes of applications",
    "subscriber_sdk.testing": "tests of applications",
    "subscriber_sdk.transactional": "applications with effects exactly once",
    "subscriber_sdk.transactional.django": "the same, with Django",
    "subscriber_sdk.transactional.psycopg": "the same, with psycopg",
    "subscriber_sdk.transactional.sqlalchemy": "the same, with SQLAlchemy",
    "spark_replay": "programs that read an archive",
    "wormhole.admin": "programs that operate publishers",
    "wormhole.metrics.exposition": "applications with prometheus-client, which the SDK does not install",
    "wormhole.ports.testing.contract": "tests of a package with a source",
}
"""Modules that others import, and who. Their ``__all__`` are the public names."""
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Module and name of everything of ours; the name is empty where the module itself is imported."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        yield from ((module, name) for module, name in found if module.partition(".")[0] in PACKAGES)


def private(code: str) -> list[str]:
    return [
        f"{module}.{name}"
        for module, name in imported(code)
        if module not in PUBLIC or (name and name not in import_module(module).__all__)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_imports_public_names_only(page: str) -> None:
    assert private("\n".join(Page(page, {}).blocks("python"))) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_imports_public_names_only(path: Path) -> None:
    assert private(path.read_text()) == []


def test_a_private_name_is_found() -> None:
    assert private("from subscriber_sdk import run, Shards\nimport wormhole.model.errors") == [
        "subscriber_sdk.Shards",
        "wormhole.model.errors.",
    ]
