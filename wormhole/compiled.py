"""Which hot modules run compiled: said at start-up, by ``wormholectl --version`` and in every status."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from pathlib import Path

__all__ = ["compiled_modules", "hot_modules"]


@cache
def hot_modules() -> tuple[str, ...]:
    """Dotted names of the modules of ``wormhole`` that have C types beside them (a sibling ``.pxd``)."""
    root = importlib.import_module("wormhole")
    found = []
    for module in pkgutil.walk_packages(root.__path__, "wormhole."):
        if module.ispkg or "." not in module.name:
            continue
        finder_path = getattr(module.module_finder, "path", "")
        if (Path(finder_path) / f"{module.name.rpartition('.')[2]}.pxd").exists():
            found.append(module.name)
    return tuple(sorted(found))


@cache
def compiled_modules() -> tuple[str, ...]:
    """Those of :func:`hot_modules` that were loaded, or would be, in their compiled form."""
    return tuple(
        name
        for name in hot_modules()
        if (spec := find_spec(name)) is not None and isinstance(spec.loader, ExtensionFileLoader)
    )
