"""Both forms of a hot module: the ``.py`` as it stands, and what was compiled from it.

A test module says ``varint = hot_module("datastores.mysql.decode.varint")`` and every test that takes ``varint``
runs once per form. Differential tests take the modules themselves with `interpreted` and `compiled`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scripts.prepare import ROOT, extension_of, hot_sources, stale


def forms() -> list[str]:
    """The forms to test: a tree that is meant to be interpreted (``WORMHOLE_BUILD_EXT=no``) has only one."""
    return ["interpreted"] if os.environ.get("WORMHOLE_BUILD_EXT") == "no" else ["interpreted", "compiled"]


def interpreted(name: str) -> ModuleType:
    """The module ``name`` loaded from its ``.py``, whatever is compiled beside it; not put into ``sys.modules``.

    The hot modules of its folder that it imports are loaded so too, because they were divided from it. Its other
    dependencies are the imported ones, so that both forms raise the same error classes.
    """
    package = importlib.import_module(name.rpartition(".")[0])
    finder = _Sources(
        {one: source for source in hot_sources() if (one := name_of(source)).startswith(f"{package.__name__}.")}
    )
    finder.sources[name] = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    present = {one: sys.modules.pop(one) for one in finder.sources if one in sys.modules}
    attributes = {one: getattr(package, one.rpartition(".")[2], None) for one in finder.sources}
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(name)
    finally:
        sys.meta_path.remove(finder)
        for one, attribute in attributes.items():
            sys.modules.pop(one, None)
            if attribute is not None:
                setattr(package, one.rpartition(".")[2], attribute)
        sys.modules.update(present)


class _Sources(MetaPathFinder):
    """Finds the ``.py`` of these modules, by name."""

    def __init__(self, sources: dict[str, Path]) -> None:
        self.sources = sources

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        source = self.sources.get(fullname)
        return None if source is None else importlib.util.spec_from_file_location(fullname, source)


def compiled(name: str) -> ModuleType:
    """The module ``name`` as compiled; skips the test where it is not (in CI a skip is a failure)."""
    module = importlib.import_module(name)
    if not isinstance(module.__loader__, ExtensionFileLoader):
        pytest.skip(f"{name} is not compiled here: `make build` says why")
    return module


def hot_module(name: str) -> Any:
    """A session fixture that yields both forms of ``name`` in turn; assign it to the name the tests ask for."""

    def fixture(request: pytest.FixtureRequest) -> ModuleType:
        return interpreted(name) if request.param == "interpreted" else compiled(name)

    fixture.__doc__ = f"Both forms of {name}."
    return pytest.fixture(fixture, scope="session", params=forms())


def name_of(source: Path) -> str:
    """The import name of the module at ``source``."""
    return ".".join(source.relative_to(ROOT).with_suffix("").parts)


def stale_modules() -> list[str]:
    """Hot modules whose compiled file is older than the source it hides."""
    return [name_of(source) for source in hot_sources() if stale(source)]


def describe() -> list[str]:
    """Lines for pytest's header: which hot modules run compiled."""
    sources = hot_sources()
    running_compiled = [name_of(source) for source in sources if extension_of(source)]
    running_interpreted = [name_of(source) for source in sources if not extension_of(source)]
    lines = []
    if running_compiled:
        lines.append(f"hot modules compiled: {', '.join(running_compiled)}")
    if running_interpreted:
        lines.append(f"hot modules interpreted: {', '.join(running_interpreted)}")
    return lines or ["hot modules: none yet"]


def compiled_names() -> list[str]:
    """Import names of the hot modules that have a compiled file; none in a tree that is meant to be interpreted."""
    if "compiled" not in forms():
        return []
    return [name_of(source) for source in hot_sources() if extension_of(source)]
