"""Finds the entry points of installed packages by group and name, and imports an entry point only when it is used."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from wormhole.model.errors import UsageError

__all__ = ["CHECKOUT", "claims", "declared", "load_only", "merged", "owner"]

_DISTRIBUTION: Final = "wormhole-pubsub"
CHECKOUT: Final = Path(__file__).parents[2] / "pyproject.toml"
"""The file that declares the entry points of this project, if this module runs from a checkout."""


def claims(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Each name of ``group``, with every entry point that claims it. The first call in a process reads files."""
    return _claims_on(tuple(sys.path), group)


@cache
def _claims_on(path: tuple[str, ...], group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """``path``: ``sys.path``, as a key of the cache, so that a changed path is searched again."""
    return merged(entry_points(group=group), declared(CHECKOUT, group))


def merged(installed: Iterable[EntryPoint], ours: Collection[EntryPoint]) -> Mapping[str, tuple[EntryPoint, ...]]:
    """The installed entry points. Those that the checkout declares replace the installed ones of this project."""
    found: dict[str, list[EntryPoint]] = {}
    for claim in sorted({*installed, *ours}):
        if ours and claim not in ours and claim.dist is not None and claim.dist.name == _DISTRIBUTION:
            continue  # the installed metadata of this checkout may be of an earlier commit
        found.setdefault(claim.name, []).append(claim)
    return {name: tuple(claimed) for name, claimed in found.items()}


def load_only(claimed: Sequence[EntryPoint], shown: str, kind: type[Any]) -> Any:
    """The object of the only entry point that claims ``shown``, an instance of ``kind``.

    Raises :class:`~wormhole.model.errors.UsageError` if several claim it, or if the object cannot be used.
    """
    if len(claimed) > 1:
        raise UsageError(
            f"{len(claimed)} packages claim {shown}: {' and '.join(map(owner, claimed))}",
            hint="uninstall all of them but one",
            code="entry-point-broken",
        )
    [claim] = claimed
    try:
        found = claim.load()
    except Exception as error:
        raise UsageError(
            f"{shown} belongs to {owner(claim)}, which cannot be imported: {type(error).__name__}: {error}",
            hint="install that package again with everything that it needs, or uninstall it",
            code="entry-point-broken",
        ) from error
    if not isinstance(found, kind):
        raise UsageError(
            f"{shown} belongs to {owner(claim)}, which is no instance of {kind.__module__}.{kind.__qualname__}",
            hint="install a release of that package that fits this one, or uninstall it",
            code="entry-point-broken",
        )
    return found


def owner(claim: EntryPoint) -> str:
    """The package of the entry point, and its version."""
    return f"{claim.dist.name} {claim.dist.version}" if claim.dist else claim.value


def declared(file: Path, group: str) -> set[EntryPoint]:
    """The entry points in ``file`` if it is the pyproject.toml of a checkout of this project, else none."""
    if not file.is_file():
        return set()
    import tomllib

    try:
        project = tomllib.loads(file.read_text("utf-8")).get("project", {})
    except ValueError:
        return set()
    ours = project.get("entry-points", {}).get(group, {}) if project.get("name") == _DISTRIBUTION else {}
    return {EntryPoint(name, value, group) for name, value in ours.items()}
