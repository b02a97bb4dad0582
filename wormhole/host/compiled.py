"""Reports which hot modules run compiled: at start-up, in ``wormholectl --version`` and in every status."""

from __future__ import annotations

import logging
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["compiled_modules", "hot_modules", "warn_interpreted"]

_log = logging.getLogger(__name__)

_SHOWN: Final = 3
_PACKAGES = ("datastores", "spark_replay", "wormhole")


@cache
def hot_modules() -> tuple[str, ...]:
    """Dotted names of the modules that have C types beside them (a sibling ``.pxd``)."""
    return tuple(sorted(_types_files()))


@cache
def compiled_modules() -> tuple[str, ...]:
    """The :func:`hot_modules` that exist in compiled form, which Python prefers to the source."""
    files = _types_files()
    return tuple(name for name in hot_modules() if any(map(Path.exists, _compiled_forms(files[name]))))


@cache
def warn_interpreted(package: str) -> None:
    """Log once in a process which hot modules of ``package``, and of ``wormhole``, run interpreted.

    Blocks: looks at the disk.
    """
    compiled = compiled_modules()
    names = [name for name in hot_modules() if name.partition(".")[0] in {package, "wormhole"} and name not in compiled]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        _log.warning(
            "%s%s run interpreted, not compiled: they need 5 to 70 times as much processor time "
            "(docs/performance.md). Next: install the wheel of wormhole-pubsub for this platform, or a C compiler and "
            "Python's headers and then: pip install --force-reinstall --no-cache-dir wormhole-pubsub",
            ", ".join(names[:_SHOWN]),
            more,
        )


def _types_files() -> dict[str, Path]:
    """The ``.pxd`` of each hot module."""
    found = {}
    for package in _PACKAGES:
        spec = find_spec(package)
        for root in map(Path, (spec and spec.submodule_search_locations) or ()):
            for pxd in root.rglob("*.pxd"):
                found[".".join((package, *pxd.relative_to(root).with_suffix("").parts))] = pxd
    return found


def _compiled_forms(pxd: Path) -> list[Path]:
    return [pxd.with_name(pxd.stem + suffix) for suffix in EXTENSION_SUFFIXES]
