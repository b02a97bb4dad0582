"""Finds the installed kinds of sinks by the scheme of their URLs: entry points of the group ``wormhole.sinks``."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint
from typing import Any, Final

from sinks.port import SinkKind
from wormhole.model.errors import UsageError
from wormhole.model.suggestion import suggestion
from wormhole.ports.entry_points import claims, load_only

__all__ = ["kind_of", "schemes"]

_GROUP: Final = "wormhole.sinks"


def schemes() -> list[str]:
    """Every scheme that an installed package claims."""
    return sorted(claims(_GROUP))


def kind_of(scheme: str) -> SinkKind[Any]:
    """The kind with this scheme.

    Raises :class:`~wormhole.model.errors.UsageError` if none, or more than one, can be used.
    """
    claimed = claims(_GROUP).get(scheme, ())
    if not claimed:
        raise UsageError(
            f"no installed package has a sink for {scheme}://{suggestion(scheme, schemes())}",
            hint="correct the scheme of the URL, or install the package that has this kind",
            code="extra-missing",
        )
    return _load(claimed)


@cache
def _load(claimed: tuple[EntryPoint, ...]) -> SinkKind[Any]:
    found: SinkKind[Any] = load_only(claimed, f"the sink {claimed[0].name}://", SinkKind)
    return found
