"""Reads settings from TOML (a file) or JSON (a file, or a node in ZooKeeper), and writes settings as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from wormhole.config.candidates import check_every_log
from wormhole.config.datastores import capabilities_of, datastore, reads_existing_rows
from wormhole.config.listeners import check_listeners
from wormhole.config.model import (
    EXISTING,
    ApplicationConfig,
    Config,
    DatasetConfig,
    LogConfig,
    named_logs,
)
from wormhole.config.processes import CoordinatorForm
from wormhole.config.relay import check_relays
from wormhole.config.report import ConfigReport
from wormhole.config.reserved import check_reserved
from wormhole.config.toml_input import read_toml
from wormhole.model.errors import ConfigError, UnknownApplication
from wormhole.model.json_input import read_json
from wormhole.model.replace_file import replace_file
from wormhole.model.suggestion import suggestion

__all__ = [
    "application_from_json",
    "check_together",
    "config_to_json",
    "dataset_from_json",
    "find_application",
    "find_log",
    "load",
    "parse",
    "parse_json",
    "plain",
    "to_json",
    "to_json_file",
    "unknown_application",
    "unknown_application_hint",
]

_LARGEST: Final = 4 << 20  # fits 10,000 applications; ZooKeeper takes at most 1 MiB for each
_NARROWING: Final = ("where", "tables", "columns", "mask")
"""Settings of an application that leave out data."""
_Named = TypeVar("_Named", ApplicationConfig, DatasetConfig)


def load(path: Path | str) -> Config:
    """Read a configuration file: TOML, or the JSON of :func:`config_to_json` if the path ends in ``.json``.

    Raises :class:`~wormhole.model.errors.ConfigError`, which lists every problem with file, field, value and what is
    allowed.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ConfigError(
                f"{path}: is larger than {_LARGEST >> 20} MiB, so it is not a configuration", hint="check the path"
            )
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such configuration file", hint="check the path") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: no text in UTF-8 (at byte {error.start}), so it is not a configuration") from error
    except OSError as error:
        raise ConfigError(f"{path}: the configuration cannot be read: {error.strerror}") from error
    read = parse_json if Path(path).suffix == ".json" else parse
    return read(text, str(path), folder=Path(path).absolute().parent)


def parse(text: str, source: str, *, folder: Path | None = None) -> Config:
    """Read configuration from TOML text; ``source`` names it in errors, relative paths start at ``folder``.

    Raises :class:`~wormhole.model.errors.ConfigError`, as :func:`load`.
    """
    try:
        given = read_toml(text)
    except ValueError as error:
        raise ConfigError(
            f"{source}: no valid TOML: {error}", hint="correct it there; docs/configuration.md shows every setting"
        ) from error
    return _checked(given, source, folder)


def parse_json(text: str, source: str, *, folder: Path | None = None) -> Config:
    """Read configuration from the JSON of :func:`config_to_json`; otherwise like :func:`parse`."""
    given = _json(text, source)
    if not isinstance(given, dict):
        raise ConfigError(f"{source}: must hold a JSON object")
    return _checked(given, source, folder)


def _checked(given: Mapping[str, Any], source: str, folder: Path | None) -> Config:
    report = ConfigReport(source)
    # Datasets and applications are validated one by one, so that a problem in one does not hide those of the others
    # nor the checks between them.
    datasets = _named(DatasetConfig, "datasets", given, report, folder, _kinds(given))
    applications = _named(ApplicationConfig, "applications", given, report, folder)
    rest = {key: value for key, value in given.items() if key not in ("datasets", "applications")}
    settings = _validated(Config, rest, report, (), folder)
    _check_datasets_exist(given, report)
    for application in applications.values():
        if application.dataset in datasets:
            _check_against_dataset(application, datasets[application.dataset], report)
    _check_archives(given, datasets, applications, report)
    config = (settings or Config(version=1)).model_copy(update={"datasets": datasets, "applications": applications})
    if settings is not None:
        _check_form(config, report)
        check_listeners(config, report)
        check_reserved(config, report)
        check_relays(config, report)
        check_every_log(config, report)
    report.raise_if_any()
    return config


def application_from_json(name: str, text: str, source: str) -> ApplicationConfig:
    """An application's settings from the JSON of its node. Raises :class:`~wormhole.model.errors.ConfigError`."""
    return _from_json(ApplicationConfig, name, text, source)


def dataset_from_json(name: str, text: str, source: str) -> DatasetConfig:
    """A dataset's settings from the JSON of its node. Raises :class:`~wormhole.model.errors.ConfigError`."""
    return _from_json(DatasetConfig, name, text, source)


def to_json(settings: ApplicationConfig | DatasetConfig) -> str:
    """The JSON that the two functions above read: the settings that differ from the defaults, without the name."""
    return json.dumps(plain(settings), sort_keys=True)


def plain(settings: ApplicationConfig | DatasetConfig, *, defaults: bool = False) -> dict[str, Any]:
    """The content of :func:`to_json` as objects; with ``defaults``, every setting."""
    return settings.model_dump(mode="json", by_alias=True, exclude_defaults=not defaults, exclude={"name"})


def check_together(datasets: Mapping[str, DatasetConfig], applications: Mapping[str, ApplicationConfig]) -> list[str]:
    """The conflicts between datasets and applications that are valid by themselves, one line for each."""
    report = ConfigReport("")
    for name, application in applications.items():
        if application.dataset not in datasets:
            like = suggestion(application.dataset, datasets)
            report.add(("applications", name, "dataset"), f"there is no such dataset{like}", application.dataset)
        else:
            _check_against_dataset(application, datasets[application.dataset], report)
    _check_archives({"applications": applications}, datasets, applications, report)
    return report.problems


def config_to_json(config: Config) -> str:
    """The whole configuration as JSON that :func:`parse_json` reads: the settings that differ from the defaults. Every
    path of a loaded file is absolute.
    """
    whole = config.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"datasets": True, "applications": True}
    )
    whole["datasets"] = {name: plain(one) for name, one in config.datasets.items()}
    whole["applications"] = {name: plain(one) for name, one in config.applications.items()}
    return json.dumps(whole, sort_keys=True, indent=1)


def to_json_file(config: Config, path: Path) -> None:
    """Write :func:`config_to_json` to ``path`` in one step: a reader sees the old file or the new one.

    Raises ``OSError``.
    """
    replace_file(path, config_to_json(config))


def find_log(config: Config, dataset: str, copy: str, log: str) -> LogConfig:
    """The log's settings. Raises :class:`~wormhole.model.errors.ConfigError`, which names what is configured
    instead.
    """
    known, name = dict(named_logs(config.datasets)), f"{dataset}/{copy}/{log}"
    settings = known.get(name)
    if settings is None:
        names = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"no log {name} is configured", hint=f"choose one of: {names}")
    return settings


def find_application(applications: Mapping[str, ApplicationConfig], name: str) -> ApplicationConfig:
    """The application's settings.

    Raises :class:`~wormhole.model.errors.UnknownApplication`, whose hint is the TOML to add."""
    found = applications.get(name)
    if found is None:
        raise unknown_application(name, applications)
    return found


def unknown_application(name: str, known: Iterable[str]) -> UnknownApplication:
    """The error for an application that is not among the ``known``, with the TOML to add as its hint."""
    return UnknownApplication(
        f"no application {name!r} is configured{suggestion(name, known)}", hint=unknown_application_hint(name)
    )


def unknown_application_hint(app: str) -> str:
    """The TOML that configures the application ``app``, ready to paste."""
    key = app if app and all(c.isascii() and (c.isalnum() or c in "_-") for c in app) else json.dumps(app)
    return (
        "add this to the configuration and publish it with `wormholectl config apply`:\n"
        f"[applications.{key}]\n"
        'dataset = "NAME"      # one of [datasets]\n'
        'start = "latest"      # latest | existing | earliest | "<position>"\n'
    )


def _json(text: str, source: str) -> object:
    try:
        given: object = read_json(text)
    except ValueError as error:
        raise ConfigError(f"{source}: no valid JSON: {error}") from error
    return given


def _from_json(model: type[_Named], name: str, text: str, source: str) -> _Named:
    given = _json(text, source)
    report = ConfigReport(source)
    settings = _validated_named(model, name, given, report, (), None)
    report.raise_if_any()
    assert settings is not None
    return settings


def _kinds(given: Mapping[str, Any]) -> dict[str, str]:
    """The kind of each source in the text's [sources] whose kind is known."""
    tables = given.get("sources")
    sources = tables.items() if isinstance(tables, Mapping) else ()
    texts = {name: table.get("source") for name, table in sources if isinstance(table, Mapping)}
    return {name: text.partition(":")[0] for name, text in texts.items() if isinstance(text, str)}


def _named(
    model: type[_Named],
    section: str,
    given: Mapping[str, Any],
    report: ConfigReport,
    folder: Path | None,
    kinds: Mapping[str, str] | None = None,
) -> dict[str, _Named]:
    tables = given.get(section, {})
    if not isinstance(tables, Mapping):
        report.add((section,), f"must hold tables, [{section}.NAME]", tables)
        return {}
    found = {
        name: _validated_named(model, name, table, report, (section, name), folder, kinds)
        for name, table in tables.items()
    }
    return {name: settings for name, settings in found.items() if settings is not None}


def _validated_named(
    model: type[_Named],
    name: str,
    table: object,
    report: ConfigReport,
    at: tuple[str, ...],
    folder: Path | None,
    kinds: Mapping[str, str] | None = None,
) -> _Named | None:
    if not isinstance(table, Mapping):
        report.add(at, "must be a table", table)
        return None
    if "name" in table:
        report.add((*at, "name"), "unknown key; the name is the one in the table's heading")
        return None
    return _validated(model, {**table, "name": name}, report, at, folder, kinds)


_Model = TypeVar("_Model", bound=BaseModel)


def _validated(
    model: type[_Model],
    given: Mapping[str, Any],
    report: ConfigReport,
    at: tuple[str, ...],
    folder: Path | None,
    kinds: Mapping[str, str] | None = None,
) -> _Model | None:
    try:
        return model.model_validate(given, context={"folder": folder, "kinds": kinds or {}})
    except ValidationError as error:
        report.add_all(error, model, at, given)
        return None


def _check_datasets_exist(given: Mapping[str, Any], report: ConfigReport) -> None:
    """Check the text as given, so that neither an invalid application nor an invalid dataset hides the problem."""
    applications, datasets = given.get("applications"), given.get("datasets", {})
    if not isinstance(applications, Mapping) or not isinstance(datasets, Mapping):
        return
    for name, table in applications.items():
        dataset = table.get("dataset") if isinstance(table, Mapping) else None
        if isinstance(dataset, str) and dataset not in datasets:
            like = suggestion(dataset, datasets) or "; the file has no [datasets]"
            report.add(("applications", name, "dataset"), f"there is no such dataset{like}", dataset)


def _check_against_dataset(application: ApplicationConfig, dataset: DatasetConfig, report: ConfigReport) -> None:
    at = ("applications", application.name)
    if application.from_copy and application.from_copy not in dataset.copies:
        like = suggestion(application.from_copy, dataset.copies)
        report.add((*at, "copy"), f"dataset {dataset.name} has no such copy{like}", application.from_copy)
    elif dataset.failover_of(application.from_copy) is not None:
        text = "is one of the copies that serve one at a time: leave `copy` out, then one of them serves"
        report.add((*at, "copy"), text, application.from_copy)
    elif not application.from_copy and len(dataset.copies) > 1 and dataset.failover is None:
        report.add((*at, "copy"), f"is required, as the dataset has several: {', '.join(sorted(dataset.copies))}")
    if application.starts_at_logical_position:
        for found in {datastore(kind) for kind in dataset.kinds}:
            if not found.is_place(application.start):
                report.add((*at, "start"), f"is no place in the log of {found.capabilities.title}", application.start)
    if application.start == EXISTING:
        for kind in dataset.kinds:
            if not reads_existing_rows(kind):
                title = capabilities_of(kind).title
                text = f'existing rows of {title} cannot be read; "latest" is every change from now on'
                report.add((*at, "start"), text, application.start)
    if application.starts_at_place and len({log for _, log, _ in dataset.each_log()}) > 1:
        text = (
            'must be "latest", "existing", "earliest" or a time: a place belongs to one log, and the dataset has '
            "several"
        )
        report.add((*at, "start"), text, application.start)


def _check_archives(
    given: Mapping[str, Any],
    datasets: Mapping[str, DatasetConfig],
    applications: Mapping[str, ApplicationConfig],
    report: ConfigReport,
) -> None:
    """Check that an archive belongs to one copy of one dataset, or to its failover, and to no other archive.

    ``given``: with every application's name, including invalid ones.
    """
    owners: dict[str, str] = {}
    named = given.get("applications")
    for dataset in datasets.values():
        if dataset.archive is None:
            continue
        at, name = ("datasets", dataset.name, "archive", "application"), dataset.archive.application
        application = applications.get(name)
        if application is None:
            if not isinstance(named, Mapping) or name not in named:  # an invalid application is reported already
                # The default name is not a typing error, so no similar name is suggested.
                like = suggestion(name, applications) if "application" in dataset.archive.model_fields_set else ""
                text = (
                    f"there is no such application{like}; the archiver subscribes as it: add [applications.{name}] "
                    "with dataset and start"
                )
                report.add(at, text, name)
        elif application.dataset != dataset.name:
            report.add(at, f"is an application of dataset {application.dataset}", name)
        elif narrowed := next((key for key in _NARROWING if getattr(application, key)), None):
            report.add(at, f"must receive every update: take {narrowed} out of [applications.{name}]", name)
        elif application.on_failure != "halt":
            report.add(
                at, f'must not go on without an update: take on_failure = "park" out of [applications.{name}]', name
            )
        folder = dataset.archive.to.rstrip("/")
        if folder in owners:
            report.add((*at[:3], "to"), f"is the archive of dataset {owners[folder]} too: each dataset needs its own")
        owners[folder] = dataset.name


def _check_form(config: Config, report: ConfigReport) -> None:
    if config.form is CoordinatorForm.ZOOKEEPER:
        for name, application in config.applications.items():
            if application.subscribers:
                text = "exclude coordinator.zookeeper, where subscribers register themselves: remove one of the two"
                report.add(("applications", name, "subscribers"), text)
    elif config.publisher.mask_key_file is None:  # in a fleet, the file of each host names the key
        for name, application in config.applications.items():
            if "hash" in application.mask.values():
                text = (
                    "hashes with a secret: name the file that holds it as mask_key_file under [publisher]; "
                    "`(umask 077; openssl rand -hex 32 > mask.key)` makes one"
                )
                report.add(("applications", name, "mask"), text)
    if config.form is CoordinatorForm.STATIC and config.publisher.markers == "zookeeper":
        report.add(
            ("publisher", "markers"), "needs coordinator.zookeeper; the static form has no ZooKeeper", "zookeeper"
        )
