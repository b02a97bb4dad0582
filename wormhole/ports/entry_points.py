"""What installed packages claim: the entry points of a group, by their names. None is imported before it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from wormhole.model.errors import UsageError

__all__ = ["claims", "load_only", "owner"]

_DISTRIBUTION: Final = "wormhole-pubsub"
_CHECKOUT: Final = Path(__file__).parents[2] / "pyproject.toml"


@cache
def claims(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Each name of ``group``, with every entry point that claims it."""
    ours = set(_of_checkout(group))
    found: dict[str, list[EntryPoint]] = {}
    for claim in sorted({*entry_points(group=group), *ours}):
        if ours and claim not in ours and claim.dist is not None and claim.dist.name == _DISTRIBUTION:
            continue  # what is installed of this checkout may be of an earlier commit
        found.setdefault(claim.name, []).append(claim)
    return {name: tuple(claimed) for name, claimed in found.items()}


def load_only(claimed: Sequence[EntryPoint], shown: str, kind: type[Any]) -> Any:
    """The object of the one entry point that claims ``shown``, an instance of ``kind``.

    Raises :class:`~wormhole.model.errors.UsageError` where several claim it, or the one cannot be used.
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
    """The package that claims it, and its version."""
    return f"{claim.dist.name} {claim.dist.version}" if claim.dist else claim.value


def _of_checkout(group: str) -> Iterator[EntryPoint]:
    """Ours, as the checkout declares them that this module runs from."""
    if not _CHECKOUT.is_file():
        return
    import tomllib

    try:
        project = tomllib.loads(_CHECKOUT.read_text("utf-8")).get("project", {})
    except ValueError:
        return
    if project.get("name") == _DISTRIBUTION:
        for name, value in project.get("entry-points", {}).get(group, {}).items():
            yield EntryPoint(name, value, group)
