"""Checks a configuration file: the logs that it has, and all problems in it."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import Final

from wormhole.config import Config, load, named_logs
from wormhole.config.application_filter import application_filter, mask_key_exposure, read_mask_key
from wormhole.config.datastores import capabilities_of
from wormhole.formats import ValueFormats, open_formats
from wormhole.model.errors import ConfigError, FilterError
from wormhole.model.units import parse_time
from wormhole.ports.entry_points import claims, load_only

__all__ = ["check_config", "check_sinks", "logs_of", "mask_key_warnings", "only_log"]


_CHECKS: Final = "wormhole.config_checks"
"""Entry points: functions that check one part of a configuration. They take the configuration and its path, return
their results by name, and raise :class:`~wormhole.model.errors.ConfigError`."""


def logs_of(config: Config) -> list[str]:
    """Every configured log as ``dataset/copy/log``."""
    return [name for name, _ in named_logs(config.datasets)]


def only_log(config: Config, log: str | None) -> tuple[str, str, str]:
    """The log to serve as (dataset, copy, log): the named one, or the only one.

    Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    known = logs_of(config)
    if log is None and len(known) == 1:
        log = known[0]
    if log not in known:
        problem = "the file configures several logs" if log is None else f"no log {log} is configured"
        if not known:
            problem = "the file configures no log"
        raise ConfigError(problem, hint=f"choose one with --log: {', '.join(known)}" if known else "add [datasets]")
    dataset, copy, name = log.split("/")
    return dataset, copy, name


def mask_key_warnings(config: Config) -> list[str]:
    """Warnings for applications that hash columns: this process cannot read the key, as a publisher must, or other
    users can read it.
    """
    path = config.publisher.mask_key_file
    if path is None or not any("hash" in application.mask.values() for application in config.applications.values()):
        return []
    try:
        read_mask_key(path)
    except ConfigError as error:
        return [f"on this host: {error}"]
    exposed = mask_key_exposure(path)
    return [f"on this host: {exposed}"] if exposed else []


def check_sinks(config: Config, path: Path) -> list[str]:
    """Check the sinks of ``config``, which ``path`` has or will have, by their kinds. Returns the names of those whose
    rows can be verified. Raises :class:`~wormhole.model.errors.ConfigError` with all problems.
    """
    verified: list[str] = []
    if config.sinks:
        for name, claimed in claims(_CHECKS).items():
            found = load_only(claimed, f"the check of {name}", FunctionType)(config, path)
            verified += [sink for sink, checked in found.items() if checked.settings.verifies]
    return verified


def check_config(path: Path, now_s: float) -> Config:
    """Read a file, every filter and every sink in it. Raises :class:`~wormhole.model.errors.ConfigError` with all
    problems.
    """
    config = load(path)
    problems = []
    formats: dict[str, ValueFormats] = {}
    for name, dataset in config.datasets.items():
        try:
            formats[name] = open_formats(dataset.value_format, dataset.values)
        except ConfigError as error:
            problems.append(f"{path}: datasets.{name}.{error}")
    for name, application in config.applications.items():
        if (parse_time(application.start) or 0) > now_s * 1e6:
            problems.append(
                f'{path}: applications.{name}.start: "{application.start}" is in the future; "latest" is from now on'
            )
        if application.dataset not in formats:
            continue
        try:
            wanted = application_filter(application, formats[application.dataset])
            for kind in config.datasets[application.dataset].kinds:
                wanted.check(capabilities_of(kind))
        except FilterError as error:
            at = f"{path}: applications.{name}"
            if error.message.startswith(("columns: ", "mask: ")):
                problems.append(f"{at}.{error}")
            else:
                problems.append(f"{at}.{'where' if application.where else 'tables'}: {error}")
    try:
        check_sinks(config, path)
    except ConfigError as error:
        problems.append(error.message)
    if problems:
        raise ConfigError(
            "\n".join(problems), hint="docs/configuration.md lists every key, docs/filters.md explains filters"
        )
    return config
