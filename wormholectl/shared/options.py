"""Options of several commands, their completion in a shell, and the values that are built from several options."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from wormhole.host.where import Where
from wormhole.model.errors import UsageError

__all__ = [
    "LOG_HELP",
    "ApplicationName",
    "Archives",
    "AsJson",
    "ConfigFile",
    "CoordinatorAt",
    "Dataset",
    "DryRun",
    "FlowName",
    "Formats",
    "LogLevel",
    "LogLevelOption",
    "LogName",
    "Master",
    "PasswordFile",
    "Where",
    "Yes",
    "absolute",
    "application_names",
    "coordinator_at",
    "duration",
    "flow_names",
    "grouped",
    "now",
    "parsed",
    "with_where",
]

_T = TypeVar("_T")
_Command = Callable[..., None]
_BARE: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
# Names that are offered for completion. A shell inserts them without quoting, so they must be plain words.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./@%+=,:-]+", re.ASCII)


class LogLevel(StrEnum):
    """The least severity that a daemon logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def absolute(folder: str) -> str:
    """The absolute path of a folder for Spark, whose executors have another working directory. A URL and an empty text
    stay unchanged."""
    return folder if not folder or "://" in folder else os.path.abspath(folder)


def coordinator_at(text: str) -> Any:
    """The option ``--coordinator`` with the help ``text``."""
    metavar = "ZK:PORT/ROOT|FILE.toml"
    return typer.Option("--coordinator", "-c", envvar="WORMHOLE_COORDINATOR", metavar=metavar, help=text)


def flow_names(ctx: Any, incomplete: str) -> list[str]:
    """The flows whose names begin with ``incomplete``, for a shell."""
    return sorted(name for name in _flows(ctx) if name.startswith(incomplete))


def application_names(ctx: Any, incomplete: str) -> list[str]:
    """The applications with flows, whose names begin with ``incomplete``, for a shell."""
    return sorted({name.partition("/")[0] for name in _flows(ctx) if name.startswith(incomplete)})


def _flows(ctx: Any) -> list[str]:
    from wormhole.admin import admin_service

    coordinator = _given(ctx, "coordinator") or os.environ.get("WORMHOLE_COORDINATOR", "")
    try:
        answers = admin_service.ask(Where(_given(ctx, "publisher") or "", coordinator))
    except Exception:  # noqa: BLE001  # a shell that completes a word has no place for any error
        return []
    names = [flow.flow for answer in answers if answer.status is not None for flow in answer.status.flows]
    return [name for name in names if _PLAIN.fullmatch(name)]


LOG_HELP: Final = "The log's URL, SCHEME://...; a wrong one is answered with the forms of every installed datastore."
LogName = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="NAME",
        help="The log's name in the configuration, where the URL and -c FILE.toml do not say it.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs (docs/cli.md).")]
ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file.", show_default=False)]
PublisherAt = Annotated[
    str, typer.Option("--publisher", "-p", metavar="HOST:PORT", help="Ask this publisher's admin service directly.")
]
CoordinatorAt = Annotated[str, coordinator_at("Find the publishers there.")]
Archives = Annotated[
    list[str] | None,
    typer.Option(
        "--archive",
        envvar="WORMHOLE_ARCHIVE",
        metavar="URL|FOLDER",
        help="An archive that ZooKeeper may name (with -c ZK); repeatable.",
        show_default=False,
    ),
]
Dataset = Annotated[
    str, typer.Argument(metavar="[DATASET]", help="Whose archive; may be left out if only one dataset has one.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would be done.")]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--value-format",
        metavar="[TABLE=]FORMAT",
        help="Format of values: json, msgpack, protobuf:FILE:MESSAGE; repeatable.",
    ),
]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="How much to log on standard error.")]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="Spark's; else spark-submit's, else local[*].")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Has a server's password; without it a file of yours does (~/.NAME of the datastore), or you are asked.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without a question.")]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", envvar="WORMHOLE_TLS_CERT", help="Certificate to dial with (PEM).")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", envvar="WORMHOLE_TLS_KEY", help="Its private key (PEM).")]
TlsCa = Annotated[Path | None, typer.Option("--tls-ca", envvar="WORMHOLE_TLS_CA", help="The authority to trust (PEM).")]
TlsCrl = Annotated[
    Path | None,
    typer.Option("--tls-crl", envvar="WORMHOLE_TLS_CRL", help="The authority's list of revoked certificates (PEM)."),
]
TlsName = Annotated[str, typer.Option("--tls-name", help="Name expected in the publisher's certificate.")]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="WORMHOLE_STATE_DIR",
        metavar="DIR",
        help="Where this host's publishers keep their state. Default: as -c FILE names it.",
    ),
]
FlowName = Annotated[
    str, typer.Argument(metavar="APP/SHARD", help="The flow.", show_default=False, autocompletion=flow_names)
]
ApplicationName = Annotated[
    str, typer.Argument(metavar="APP", help="The application.", show_default=False, autocompletion=application_names)
]


def parsed(parse: Callable[[str], _T], option: str, text: str, example: str) -> _T:
    """The value of an option. Raises :class:`~wormhole.model.errors.UsageError` if ``parse`` raises ``ValueError``."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}", hint=f"for example {option} {example}") from None


def duration(option: str, text: str, example: str = "30s") -> float:
    """An option's duration in seconds. A number without a unit means seconds. Raises the error of :func:`parsed`."""
    from wormhole.model.units import parse_duration

    def seconds(given: str) -> float:
        return parse_duration(float(given) if _BARE.fullmatch(given) else given)

    return parsed(seconds, option, text, example)


def now() -> float:
    """The time in seconds since 1970. Commands read no other clock."""
    from wormhole.host.clock import SYSTEM_CLOCK

    return SYSTEM_CLOCK.wall()


def grouped(parameter: str, options: Mapping[str, Any], build: Callable[..., Any]) -> Callable[[_Command], _Command]:
    """A decorator that adds ``options`` to a command and passes the result of ``build`` as its ``parameter``.

    ``options``: an annotation for each name. ``build`` gets ``None`` for an option without a value. An option before a
    verb (``flows -c shop.toml pause ...``) also applies to the verb.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY

    def decorate(command: _Command) -> _Command:
        own = inspect.signature(command, eval_str=True).parameters

        def reached(ctx: typer.Context, **given: Any) -> None:
            others = {name: value for name, value in given.items() if name not in options}
            if "ctx" in own:
                others["ctx"] = ctx
            command(**{parameter: build(**{name: _given(ctx, name) for name in options})}, **others)

        parameters = [
            inspect.Parameter("ctx", keyword, annotation=typer.Context),
            *(one.replace(kind=keyword) for one in own.values() if one.name not in {"ctx", parameter}),
            *(inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in options.items()),
        ]
        reached.__name__, reached.__doc__ = command.__name__, command.__doc__
        reached.__annotations__ = {one.name: one.annotation for one in parameters}
        reached.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it
        return reached

    return decorate


def _given(ctx: Any, name: str) -> Any:
    """The value of an option of this command, or of the nearest group before it."""
    while ctx is not None:
        if given := ctx.params.get(name):
            return given
        ctx = ctx.parent
    return None


def _where(
    publisher: str | None,
    coordinator: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    tls_crl: Path | None,
    tls_name: str | None,
    state_dir: Path | None,
) -> Where:
    from wormhole.config import TlsFiles

    files = (tls_cert, tls_key, tls_ca)
    if any(files) and not all(files):
        raise UsageError("--tls-cert, --tls-key and --tls-ca belong together", hint="give all three")
    if tls_crl and not all(files):
        raise UsageError("--tls-crl belongs to --tls-cert, --tls-key and --tls-ca", hint="give all four")
    tls = None
    if tls_cert and tls_key and tls_ca:
        tls = TlsFiles(cert=tls_cert, key=tls_key, ca=tls_ca, crl=tls_crl)
    return Where(publisher or "", coordinator or "", tls, tls_name or "", state_dir)


_WHERE: Final[dict[str, Any]] = {
    "publisher": PublisherAt,
    "coordinator": CoordinatorAt,
    "tls_cert": TlsCert,
    "tls_key": TlsKey,
    "tls_ca": TlsCa,
    "tls_crl": TlsCrl,
    "tls_name": TlsName,
    "state_dir": StateDir,
}

with_where = grouped("where", _WHERE, _where)
"""A decorator that replaces a command's parameter ``where`` by the options for reaching publishers.

The command raises :class:`~wormhole.model.errors.UsageError` for incomplete TLS options.
"""
