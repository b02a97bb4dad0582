"""What a configuration would change of what is stored, setting by setting. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from wormhole.config import ApplicationConfig, Config, DatasetConfig, to_json
from wormhole.coordination.port import ConfigChange, StoredConfig

__all__ = ["Difference", "Differences", "changed", "differences"]

_T = TypeVar("_T")
_Settings = TypeVar("_Settings", ApplicationConfig, DatasetConfig)


@dataclass(slots=True, frozen=True)
class Difference:
    """One setting. ``before`` and ``after`` are as JSON writes them; empty where it is not set, so that the default holds."""

    path: str
    before: str
    after: str

    @property
    def kind(self) -> Literal["added", "removed", "changed"]:
        """Whether it was not set, is not set any more, or is set otherwise."""
        if not self.before:
            return "added"
        return "changed" if self.after else "removed"


@dataclass(slots=True, frozen=True)
class Differences:
    """``change`` is what to publish, ``settings`` what is different about it, ``kept`` what the file lacks and stays stored."""

    change: ConfigChange
    settings: tuple[Difference, ...]
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
        """The settings that change, one a line, as they are."""
        return "\n".join(f"{one.path} = {one.before}" for one in self.settings if one.before)

    @property
    def after(self) -> str:
        """The same as they will be."""
        return "\n".join(f"{one.path} = {one.after}" for one in self.settings if one.after)


def differences(stored: StoredConfig, wanted: Config, *, prune: bool = False) -> Differences:
    """From what is ``stored`` to the datasets and applications of ``wanted``. What ``wanted`` lacks stays, unless ``prune``."""
    datasets = _to_publish(stored.datasets, wanted.datasets, prune)
    applications = _to_publish(stored.applications, wanted.applications, prune)
    found: list[Difference] = []
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
    """``present`` after ``change``, in which ``None`` removes."""
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
) -> list[Difference]:
    old, new = _flat(table, before), _flat(table, after)
    paths = sorted(old.keys() | new.keys())
    return [Difference(path, old.get(path, ""), new.get(path, "")) for path in paths if old.get(path) != new.get(path)]


def _flat(table: str, settings: ApplicationConfig | DatasetConfig | None) -> dict[str, str]:
    if settings is None:
        return {}
    flat: dict[str, str] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{path}.{key}", inner)
        else:
            flat[path] = json.dumps(value, ensure_ascii=False)

    walk(table, json.loads(to_json(settings)))
    return flat
