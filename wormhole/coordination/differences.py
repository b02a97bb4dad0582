"""The changes that a configuration would make to the stored one, setting by setting. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from wormhole.config import ApplicationConfig, Config, DatasetConfig, plain, published
from wormhole.coordination.port import ConfigChange, StoredConfig

__all__ = ["Differences", "SettingDifference", "changed", "compared", "differences", "flattened"]

_T = TypeVar("_T")
_Settings = TypeVar("_Settings", ApplicationConfig, DatasetConfig)


@dataclass(slots=True, frozen=True)
class SettingDifference:
    """One setting that differs.

    ``before`` and ``after`` are in JSON's form. A setting that is not set has its default there; empty: the setting
    does not exist.
    """

    path: str
    before: str
    after: str

    @property
    def kind(self) -> Literal["added", "removed", "changed"]:
        """Whether the setting is added, removed or changed."""
        if not self.before:
            return "added"
        return "changed" if self.after else "removed"


@dataclass(slots=True, frozen=True)
class Differences:
    """``change``: what to publish. ``settings``: the settings that differ. ``kept``: the records that the file lacks
    and that stay stored.
    """

    change: ConfigChange
    settings: tuple[SettingDifference, ...]
    kept: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to publish."""
        return not self.change.datasets and not self.change.applications

    @property
    def target(self) -> str:
        """The tables that change, as the history names them."""
        tables = [f"datasets.{name}" for name in self.change.datasets]
        return ", ".join([*tables, *(f"applications.{name}" for name in self.change.applications)])

    @property
    def before(self) -> str:
        """The settings that change, one a line, with their values before the change."""
        return "\n".join(f"{one.path} = {one.before}" for one in self.settings if one.before)

    @property
    def after(self) -> str:
        """The settings that change, one a line, with their values after the change."""
        return "\n".join(f"{one.path} = {one.after}" for one in self.settings if one.after)


def differences(stored: StoredConfig, wanted: Config, *, prune: bool = False) -> Differences:
    """The differences between what is ``stored`` and the datasets and applications of ``wanted``. Only the names
    of sources are compared. Records that ``wanted`` lacks stay, unless ``prune``.
    """
    datasets = _to_publish(stored.datasets, published(wanted.datasets), prune)
    applications = _to_publish(stored.applications, wanted.applications, prune)
    found: list[SettingDifference] = []
    for name, dataset in datasets.items():
        found += _settings(f"datasets.{name}", stored.datasets.get(name), dataset)
    for name, application in applications.items():
        found += _settings(f"applications.{name}", stored.applications.get(name), application)
    kept: list[str] = []
    if not prune:
        kept += [f"datasets.{name}" for name in sorted(stored.datasets.keys() - wanted.datasets.keys())]
        kept += [f"applications.{name}" for name in sorted(stored.applications.keys() - wanted.applications.keys())]
    return Differences(ConfigChange(stored.version, datasets, applications), tuple(found), tuple(kept))


def changed(present: Mapping[str, _T], change: Mapping[str, _T | None]) -> dict[str, _T]:
    """``present`` after ``change``. ``None`` in ``change`` removes a record."""
    return {name: settings for name, settings in {**present, **change}.items() if settings is not None}


def _to_publish(
    stored: Mapping[str, _Settings], wanted: Mapping[str, _Settings], prune: bool
) -> dict[str, _Settings | None]:
    found: dict[str, _Settings | None] = {
        name: wanted[name] for name in sorted(wanted) if stored.get(name) != wanted[name]
    }
    if prune:
        found |= dict.fromkeys(sorted(stored.keys() - wanted.keys()))
    return found


def _settings(
    table: str, before: ApplicationConfig | DatasetConfig | None, after: ApplicationConfig | DatasetConfig | None
) -> list[SettingDifference]:
    old, new = _flat(table, before), _flat(table, after)
    return compared(old, new, _flat(table, before, defaults=True), _flat(table, after, defaults=True))


def _flat(table: str, settings: ApplicationConfig | DatasetConfig | None, *, defaults: bool = False) -> dict[str, str]:
    return {} if settings is None else flattened(plain(settings, defaults=defaults), table)


def compared(
    old: Mapping[str, str], new: Mapping[str, str], old_defaults: Mapping[str, str], new_defaults: Mapping[str, str]
) -> list[SettingDifference]:
    """The differences between two :func:`flattened` tables.

    A setting that is not set on one side has its default there, if its table exists. ``old_defaults`` and
    ``new_defaults`` have every setting.
    """
    differ = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    before, after = {**old_defaults, **old}, {**new_defaults, **new}
    return [SettingDifference(path, before.get(path, ""), after.get(path, "")) for path in differ]


def flattened(table: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Every setting of a table of JSON, in JSON's form, by its path. Settings with an empty value are left out."""
    flat: dict[str, str] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{path}.{key}" if path else key, inner)
        elif value not in (None, "", []):
            flat[path] = json.dumps(value, ensure_ascii=False)

    walk(path, table)
    return flat
