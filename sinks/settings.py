"""Reads the tables ``[sinks.NAME]`` of a configuration, each checked by its kind of store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sinks.kinds import kind_of
from sinks.port import Sink, SinkKind, SinkSettings
from wormhole.config import Config, CoordinatorForm
from wormhole.config.report import ConfigReport
from wormhole.model.errors import UsageError
from wormhole.model.suggestion import suggestion

__all__ = ["ConfiguredSink", "configured_sink", "configured_sinks", "only_sink"]


@dataclass(frozen=True, slots=True)
class ConfiguredSink:
    """A sink as a configuration describes it."""

    name: str
    kind: SinkKind[Any]
    settings: SinkSettings

    @property
    def application(self) -> str:
        """The application whose updates the sink receives."""
        return self.settings.application or self.name

    def open(self) -> Sink:
        """Open the sink. Raises :class:`~wormhole.model.errors.UsageError`, also if a client library is missing."""
        try:
            return self.kind.open(self.name, self.settings)
        except ModuleNotFoundError as error:
            raise UsageError.not_installed(error, self.kind.requirement) from error


def configured_sinks(config: Config, path: Path) -> dict[str, ConfiguredSink]:
    """Every sink of the file ``path``, by name. Raises :class:`~wormhole.model.errors.ConfigError`, which lists every
    problem, also of kinds that cannot be used.
    """
    report = ConfigReport(str(path))
    found = {}
    for name, table in config.sinks.items():
        try:
            found[name] = _checked(name, config, path, report)
        except UsageError as error:  # the other sinks are checked too
            report.add(("sinks", name, "url"), f"{error.message}{f' ({error.hint})' if error.hint else ''}", table.url)
    report.raise_if_any()
    return {name: sink for name, sink in found.items() if sink is not None}


def configured_sink(config: Config, path: Path, name: str) -> ConfiguredSink:
    """The sink ``name`` of the file ``path``. Raises as :func:`configured_sinks`, for this sink alone."""
    table = config.sinks.get(name)
    if table is None:
        raise UsageError(
            f"{path} has no sink {name}{suggestion(name, config.sinks)}",
            hint=f"add [sinks.{name}] with its url (docs/sinks.md)",
        )
    report = ConfigReport(str(path))
    found = _checked(name, config, path, report)
    report.raise_if_any()
    assert found is not None
    return found


def only_sink(config: Config, path: Path) -> str:
    """The name of the only sink of the file ``path``. Raises :class:`~wormhole.model.errors.UsageError`."""
    if len(config.sinks) != 1:
        names = ", ".join(sorted(config.sinks))
        raise UsageError(
            f"{path} has {'several sinks' if names else 'no sink'}",
            hint=f"name one of {names}" if names else "add [sinks.NAME] with its url (docs/sinks.md)",
        )
    return next(iter(config.sinks))


def _checked(name: str, config: Config, path: Path, report: ConfigReport) -> ConfiguredSink | None:
    table = config.sinks[name]
    kind, folder = kind_of(table.kind), path.absolute().parent
    given: Mapping[str, Any] = {**table.options, **table.model_dump(include={"url", "application"}, exclude_none=True)}
    try:
        settings = kind.settings.model_validate(given, context={"folder": folder})
    except ValidationError as error:
        report.add_all(error, kind.settings, ("sinks", name), given)
        return None
    found = ConfiguredSink(name, kind, settings)
    if config.form is CoordinatorForm.STATIC and found.application not in config.applications:
        known = suggestion(found.application, config.applications)
        report.add(("sinks", name), f"there is no [applications.{found.application}] whose updates it would get{known}")
    return found
