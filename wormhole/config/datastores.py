"""The datastores that are installed, by the scheme of their URLs: entry points of the group ``wormhole.sources``.

Ours and those of other packages are found alike, and none is imported before a URL, or a setting, of its kind is met.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import UsageError
from wormhole.model.position import LogPosition
from wormhole.ports.datastore import Datastore

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
_DISTRIBUTION: Final = "wormhole-pubsub"
_CHECKOUT: Final = Path(__file__).parents[2] / "pyproject.toml"


def schemes() -> list[str]:
    """Every scheme that a package claims."""
    return sorted(_claims())


def datastore(scheme: str) -> Datastore:
    """The datastore with this scheme.

    Raises :class:`~wormhole.model.errors.UsageError` where none, or more than one, can be used."""
    claims = _claims().get(scheme, ())
    if not claims:
        raise UsageError(
            f"no installed package reads {scheme}://" if scheme else "it has no scheme", hint=f"write {forms()}"
        )
    if len(claims) > 1:
        raise UsageError(
            f"{len(claims)} packages claim {scheme}://: {' and '.join(map(_owner, claims))}",
            hint="uninstall all of them but one",
        )
    return _load(claims[0])


@cache
def _load(claim: EntryPoint) -> Datastore:
    try:
        found = claim.load()
    except Exception as error:
        raise UsageError(
            f"{claim.name}:// belongs to {_owner(claim)}, which cannot be imported: {type(error).__name__}: {error}",
            hint="install that package again with everything that it needs, or uninstall it",
        ) from error
    if not isinstance(found, Datastore):
        raise UsageError(
            f"{claim.name}:// belongs to {_owner(claim)}, which is no instance of wormhole.ports.datastore.Datastore",
            hint="install a release of that package that fits this one, or uninstall it",
        )
    return found


@contextmanager
def installed(found: Datastore) -> Iterator[None]:
    """Around what imports the datastore's driver.

    Raises :class:`~wormhole.model.errors.UsageError` that says how to install what is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError.not_installed(error, found.requirement) from error


def is_one_datastore(*kinds: str) -> bool:
    """Whether these schemes belong to the same datastore."""
    return len({tuple(claim.value for claim in _claims().get(kind, ())) or kind for kind in kinds}) <= 1


def capabilities_of(scheme: str) -> Capabilities:
    """What its updates hold; the default for a datastore that is not installed here."""
    try:
        return datastore(scheme).capabilities
    except UsageError:
        return Capabilities()


def reads_existing_rows(scheme: str) -> bool:
    """Whether the rows that its tables hold can be read; true for a datastore that is not installed here."""
    try:
        return type(datastore(scheme)).open_tables is not Datastore.open_tables
    except UsageError:
        return True


def is_place(text: str) -> bool:
    """Whether ``text`` is a logical position of some datastore's log."""
    return any(one.is_place(text) for _, one in _usable())


def native_place(scheme: str, place: LogPosition, base: str) -> str:
    """``place`` as the tools of this datastore write it; empty where they have no other form, or it is not installed
    here.
    """
    try:
        return datastore(scheme).native_place(place, base)
    except UsageError:
        return ""


def forms() -> str:
    """What URLs look like, for messages."""
    known = [one.form(scheme) for scheme, one in _usable()]
    return f"{', '.join(known[:-1])} or {known[-1]}" if len(known) > 1 else "".join(known)


def _usable() -> Iterator[tuple[str, Datastore]]:
    for scheme in schemes():
        try:
            yield scheme, datastore(scheme)
        except UsageError:
            continue


@cache
def _claims() -> Mapping[str, tuple[EntryPoint, ...]]:
    claims: dict[str, list[EntryPoint]] = {}
    for claim in sorted({*entry_points(group=GROUP), *_of_checkout()}):
        claims.setdefault(claim.name, []).append(claim)
    return {scheme: tuple(found) for scheme, found in claims.items()}


def _of_checkout() -> Iterator[EntryPoint]:
    """Ours, as the checkout declares them that this module runs from: what is installed of it may be of an earlier
    commit."""
    try:
        project = tomllib.loads(_CHECKOUT.read_text("utf-8")).get("project", {})
    except (OSError, ValueError):
        return
    if project.get("name") == _DISTRIBUTION:
        for name, value in project.get("entry-points", {}).get(GROUP, {}).items():
            yield EntryPoint(name, value, GROUP)


def _owner(claim: EntryPoint) -> str:
    return f"{claim.dist.name} {claim.dist.version}" if claim.dist else claim.value
