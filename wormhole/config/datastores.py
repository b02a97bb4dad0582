"""The installed datastores, by the scheme of their URLs: entry points of the group ``wormhole.sources``.

Datastores of this project and of other packages are found in the same way. A datastore is imported when a URL or a
setting of its kind is first read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint
from typing import Final

from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import UsageError
from wormhole.model.position import LogPosition
from wormhole.ports.datastore import Datastore
from wormhole.ports.entry_points import claims, load_only

__all__ = [
    "capabilities_of",
    "datastore",
    "forms",
    "installed",
    "is_one_datastore",
    "is_place",
    "native_place",
    "reads_existing_rows",
    "schemes",
]

GROUP: Final = "wormhole.sources"


def schemes() -> list[str]:
    """Every scheme that a package claims."""
    return sorted(claims(GROUP))


def datastore(scheme: str) -> Datastore:
    """The datastore with this scheme.

    Raises :class:`~wormhole.model.errors.UsageError` if none, or more than one, can be used.
    """
    claimed = claims(GROUP).get(scheme, ())
    if not claimed:
        raise UsageError(
            f"no installed package reads {scheme}://" if scheme else "it has no scheme",
            hint=f"write {forms()}",
            code="extra-missing",
        )
    return _load(claimed)


@cache
def _load(claimed: tuple[EntryPoint, ...]) -> Datastore:
    found: Datastore = load_only(claimed, f"{claimed[0].name}://", Datastore)
    return found


@contextmanager
def installed(found: Datastore) -> Iterator[None]:
    """Wraps code that imports the datastore's driver.

    Raises :class:`~wormhole.model.errors.UsageError`, which contains how to install a missing package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError.not_installed(error, found.requirement) from error


def is_one_datastore(*kinds: str) -> bool:
    """Whether these schemes belong to the same datastore."""
    return len({tuple(claim.value for claim in claims(GROUP).get(kind, ())) or kind for kind in kinds}) <= 1


def capabilities_of(scheme: str) -> Capabilities:
    """The capabilities of the datastore; the default ones if it is not installed here."""
    try:
        return datastore(scheme).capabilities
    except UsageError:
        return Capabilities()


def reads_existing_rows(scheme: str) -> bool:
    """Whether the datastore's existing rows can be read; true for a datastore that is not installed here."""
    try:
        return type(datastore(scheme)).open_tables is not Datastore.open_tables
    except UsageError:
        return True


def is_place(text: str) -> bool:
    """Whether ``text`` is a logical position of some datastore's log."""
    return any(one.is_place(text) for _, one in _usable())


def native_place(scheme: str, place: LogPosition, base: str) -> str:
    """``place`` as the tools of this datastore write it; empty if they have no other form, or it is not
    installed here.
    """
    try:
        return datastore(scheme).native_place(place, base)
    except UsageError:
        return ""


def forms() -> str:
    """The forms of URLs, for messages."""
    known = [one.form(scheme) for scheme, one in _usable()]
    return f"{', '.join(known[:-1])} or {known[-1]}" if len(known) > 1 else "".join(known)


def _usable() -> Iterator[tuple[str, Datastore]]:
    for scheme in schemes():
        try:
            yield scheme, datastore(scheme)
        except UsageError:
            continue
