"""Options that several commands have, and what they mean together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from wormhole.model.errors import UsageError

if TYPE_CHECKING:
    from wormholectl.discovery import Where

__all__ = [
    "LOG_HELP",
    "ApplicationName",
    "Archives",
    "AsJson",
    "ConfigFile",
    "CoordinatorAt",
    "FlowName",
    "Formats",
    "LogLevel",
    "PasswordFile",
    "PublisherAt",
    "Yes",
    "duration",
    "with_where",
]


class LogLevel(StrEnum):
    """How much a daemon says."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LOG_HELP: Final = "The log's URL, SCHEME://...; a wrong one is answered with the forms of every installed datastore."
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs (docs/cli.md).")]
ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file.", show_default=False)]
PublisherAt = Annotated[
    str, typer.Option("--publisher", "-p", metavar="HOST:PORT", help="Ask this publisher's admin service directly.")
]
CoordinatorAt = Annotated[
    str,
    typer.Option(
        "--coordinator",
        "-c",
        envvar="WORMHOLE_COORDINATOR",
        metavar="ZK:PORT/ROOT|FILE.toml",
        help="Find the publishers there.",
    ),
]
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
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--value-format",
        metavar="[TABLE=]FORMAT",
        help="What values hold: json, msgpack, protobuf:FILE:MESSAGE; repeatable.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Holds a server's password; without it a file of yours does (~/.NAME of the datastore), or you are asked.",
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
        help="Where this host's publishers keep their state, if not where -c FILE says.",
    ),
]


def _flows(ctx: typer.Context, incomplete: str) -> list[str]:
    from wormholectl.complete import flow_names

    return flow_names(ctx, incomplete)


def _applications(ctx: typer.Context, incomplete: str) -> list[str]:
    from wormholectl.complete import application_names

    return application_names(ctx, incomplete)


FlowName = Annotated[
    str,
    typer.Argument(metavar="APP/SHARD", help="The flow.", show_default=False, autocompletion=_flows),
]
ApplicationName = Annotated[
    str,
    typer.Argument(metavar="APP", help="The application.", show_default=False, autocompletion=_applications),
]


def duration(option: str, text: str, example: str = "30s") -> float:
    """The seconds that an option names. Raises :class:`~wormhole.model.errors.UsageError`."""
    from wormhole.config import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}", hint=f"for example {option} {example}") from None


def with_where(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, in place of its parameter ``where``, the options that say how to reach publishers.

    What stands before a verb (``flows -c shop.toml pause ...``) holds for the verb as well.
    Such a command raises :class:`~wormhole.model.errors.UsageError` for TLS options that do not belong together.
    """

    def reached(ctx: typer.Context, **options: Any) -> None:
        chosen = {name: options.pop(name) or _given_before(ctx, name) for name in _WHERE}
        if wants_context:
            options["ctx"] = ctx
        command(where=_where(**chosen), **options)

    own = inspect.signature(command).parameters.values()
    hints = get_type_hints(command, localns={"Where": object}, include_extras=True)
    wants_context = "ctx" in hints
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("ctx", keyword, annotation=typer.Context)]
    parameters += [
        one.replace(kind=keyword, annotation=hints[one.name]) for one in own if one.name not in {"ctx", "where"}
    ]
    parameters += [
        inspect.Parameter(name, keyword, default=value, annotation=kind) for name, (kind, value) in _WHERE.items()
    ]
    reached.__name__, reached.__doc__ = command.__name__, command.__doc__
    reached.__annotations__ = {one.name: one.annotation for one in parameters}
    reached.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
    return reached


def _given_before(ctx: typer.Context, name: str) -> Any:
    above: Any = ctx.parent
    while above is not None:
        if given := above.params.get(name):
            return given
        above = above.parent
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
    from wormholectl.discovery import Where

    files = (tls_cert, tls_key, tls_ca)
    if any(files) and not all(files):
        raise UsageError("--tls-cert, --tls-key and --tls-ca belong together", hint="give all three")
    if tls_crl and not all(files):
        raise UsageError("--tls-crl belongs to --tls-cert, --tls-key and --tls-ca", hint="give all four")
    tls = None
    if tls_cert and tls_key and tls_ca:
        tls = TlsFiles(cert=tls_cert, key=tls_key, ca=tls_ca, crl=tls_crl)
    return Where(publisher or "", coordinator or "", tls, tls_name or "", state_dir)


_WHERE: Final[dict[str, tuple[Any, Any]]] = {
    "publisher": (PublisherAt, ""),
    "coordinator": (CoordinatorAt, ""),
    "tls_cert": (TlsCert, None),
    "tls_key": (TlsKey, None),
    "tls_ca": (TlsCa, None),
    "tls_crl": (TlsCrl, None),
    "tls_name": (TlsName, ""),
    "state_dir": (StateDir, None),
}
