"""The settings of a subscriber. A setting is a keyword argument, or else ``WORMHOLE_<NAME>`` in the environment, or
else its default.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from subscriber_sdk.options.admission import publisher_entries
from wormhole.coordination.access_tokens import LONGEST_TOKEN
from wormhole.coordination.port import WEIGHTS, Coordinator
from wormhole.model.errors import ConfigError, UsageError, WormholeError
from wormhole.model.suggestion import suggestion
from wormhole.model.units import parse_duration, parse_size

if TYPE_CHECKING:
    from wormhole.config import TlsAuthority, TlsFiles

__all__ = ["ANY_PORT", "SHARED", "Options", "RetryPolicy", "SubscriberOptions", "read_options"]


@dataclass(slots=True, frozen=True)
class RetryPolicy:
    """The number of tries and the waits between them. ``attempts`` includes the first try. Waits are seconds.

    The default is eight attempts with doubling waits from 0.1 s. They take about 13 s, long enough for a restart of a
    database that the handler uses. ``longest_wait`` bounds each wait when more attempts are configured.
    """

    attempts: int = 8
    first_wait: float = 0.1
    longest_wait: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"retry.attempts is {self.attempts}; it counts the first try, so it is at least 1")
        for name, value in (("first_wait", self.first_wait), ("longest_wait", self.longest_wait)):
            if not 0 <= value < float("inf"):
                raise ConfigError(f"retry.{name} is {value}; seconds from 0 up are needed")

    def wait(self, failures: int, chance: float) -> float:
        """Seconds before the next try after ``failures`` failures; ``chance`` (0 to 1) shortens it by up to half."""
        # The exponent is bounded so that a policy of a million attempts does not overflow a float.
        longest = min(self.longest_wait, self.first_wait * 2.0 ** min(failures - 1, 64))
        return longest * (1 - chance / 2)


MIB: Final = 1 << 20
ANY_PORT: Final = "127.0.0.1:0"
SHARED: Final = "(shared)"
"""``Options.coordinator`` of a subscriber that was given a coordinator object."""
_LEAST_FRAME: Final = 4096  # docs/wire.md
_ALLOWED: Final = {
    "tls": "paths are needed: certificate,key,authority[,revocation list], or with a token authority[,revocation list]",
    "token": "the text that `wormholectl tokens create` printed is needed",
    "publishers": "names of certificates are needed, each alone or as DATASET=NAME: NAME,DATASET=NAME",
    "dial": "addresses of publishers are needed: host:port,host:port",
    "insecure": "true or false is needed",
    "retry": "a RetryPolicy or a number of attempts is needed",
    "concurrency": "a whole number from 1 on is needed, for example 8",
    "weight": "a number is needed",
    "coordinator": "servers and root, as in zk1:2181,zk2:2181/wormhole, or the path of a TOML file are needed",
}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "application": (str,),
    "listen": (str,),
    "advertise": (str,),
    "id": (str,),
    "token": (str,),
    "insecure": (bool,),
    "retry": (RetryPolicy, type(None)),
}
_UNNAMED: Final = (
    "publishers is missing: with tls a subscriber names the certificates that may push to it, or every holder of one "
    "of that "
    'authority could; add publishers=["NAME"] (WORMHOLE_PUBLISHERS=NAME), where NAME is a DNS name in the '
    "publisher's certificate: "
    "`wormholectl doctor -c FILE` prints the line for this installation"
)


class SubscriberOptions(TypedDict, total=False):
    """The keyword arguments of ``run``, ``serve``, ``updates`` and ``transactions`` beside ``application``, as they may
    be given. :class:`Options` describes each.

    Sizes are bytes or text like ``"4MiB"``, times are seconds or text like ``"1m"``. ``coordinator`` may be an object
    of the port :class:`~wormhole.coordination.port.Coordinator`, which the caller starts and stops.
    """

    coordinator: str | os.PathLike[str] | Coordinator
    listen: str
    advertise: str
    id: str
    weight: float
    tls: TlsFiles | TlsAuthority | str | None
    publishers: str | Collection[str] | Mapping[str, str | Collection[str]]
    dial: str | Collection[str]
    token: str
    insecure: bool
    concurrency: int
    handler_timeout: float | str
    stop_timeout: float | str
    retry: RetryPolicy | int | None
    credit: int | str
    buffer: int | str
    max_frame: int | str
    max_update: int | str
    max_state: int | str


@dataclass(slots=True, frozen=True)
class Options:
    """All settings, as read from :class:`SubscriberOptions` and the environment.

    A problem raises :class:`~wormhole.model.errors.ConfigError` that names the option.
    """

    application: str
    """The application that this process is a subscriber of."""
    coordinator: str = ""
    """Where to register: ``zk1:2181,zk2:2181/wormhole``, or the path of a TOML file. Empty: the subscriber does not
    register, and the publisher's configuration has its address.
    """
    listen: str = ANY_PORT
    """The address at which connections of publishers are accepted. Port 0 is any free port. The default is the address
    that a configuration file lists for this subscriber, if there is one.
    """
    advertise: str = ""
    """The address that publishers dial; needed where ``listen`` is a wildcard. Empty: the address of ``listen``."""
    id: str = ""
    """The name of this instance within the application. Empty: the only instance that a configuration file lists,
    otherwise ``<host name>-<process id>``."""
    weight: float = 1.0
    """The share of the shards that this instance gets, relative to the weights of the other instances."""
    tls: TlsFiles | TlsAuthority | None = None
    """Certificate, key, authority and revocation list (from the environment: ``cert,key,ca`` or ``cert,key,ca,crl``).
    Publishers then need a certificate of the same authority that is not revoked. With ``token`` the authority is enough
    (``"ca"``, ``"ca,crl"``).
    """
    publishers: tuple[str, ...] = ()
    """Names in the certificates of the publishers that may push, each with or without its dataset (``"NAME"``,
    ``"DATASET=NAME"``, or a mapping of datasets to names). Needed with TLS, and only allowed with TLS. See
    :mod:`subscriber_sdk.options.admission`.
    """
    dial: tuple[str, ...] = ()
    """The addresses of publishers (``host:port``) that this subscriber dials, for an application that is configured
    with ``connect = "publisher"``. A subscriber that dials does not listen. Empty: the subscriber dials the publishers
    that ``coordinator`` lists, if the application is configured so; otherwise publishers dial the subscriber.
    """
    token: str = field(default="", repr=False)
    """A token of the application, from ``wormholectl tokens create``, in place of a certificate, for a subscriber that
    dials. The token is sent only to publishers of this machine, and to publishers that proved a name in ``publishers``.
    """
    insecure: bool = False
    """Allow listening beyond loopback without TLS."""
    concurrency: int = 1
    """How many ``on_update`` calls of one shard may run at a time. With more than one, only the order of each key is
    kept."""
    handler_timeout: float = 30.0
    """How long one callback may take (seconds). A shard that moves to another subscriber waits at most as long for its
    running callback."""
    stop_timeout: float = 25.0
    """How long a graceful stop may take (seconds). The default is below the 30 s after which most supervisors kill a
    process."""
    retry: RetryPolicy | None = None
    """The retries after a callback failed. A number means that many attempts. ``None``: the application's
    configuration, otherwise the defaults of :class:`RetryPolicy`.
    """
    credit: int = 4 * MIB
    """Bytes of unprocessed updates that one flow may have in this process. The default lasts 20 ms at 200 MB/s."""
    buffer: int = 64 * MIB
    """Bytes of unprocessed updates that all flows together may have in this process. Finished updates that are kept for
    a rollback may take twice as many bytes."""
    max_frame: int = 4 * MIB
    """The largest gRPC message that is accepted."""
    max_update: int = 64 * MIB
    """The largest single update in bytes. A larger update is delivered without values, marked ``too_large``."""

    max_state: int = 64 * MIB
    """Bytes that this process may keep for publishers in addition to updates: flows (12 KiB each), schemas, lists and
    datamarkers. When the bytes are used up, the publisher that uses the most loses its stream.
    """

    def __post_init__(self) -> None:
        problems = []
        if not self.application:
            problems.append('application = "": name the application that this process is a subscriber of')
        problems += [
            f"{name} = {getattr(self, name)}: {_ALLOWED.get(name, 'at least 1 is needed')}"
            for name in ("concurrency", "credit", "buffer", "max_frame", "max_update", "max_state")
            if getattr(self, name) < 1
        ]
        if 0 < self.max_frame < _LEAST_FRAME:
            problems.append(f"max_frame = {self.max_frame}: publishers need at least {_LEAST_FRAME}")
        problems += [
            f"{name} = {getattr(self, name)}: a positive number is needed"
            for name in ("handler_timeout", "stop_timeout")
            if not 0 < getattr(self, name) < float("inf")
        ]
        least, most = WEIGHTS
        if not least <= self.weight <= most:
            problems.append(f"weight = {self.weight}: a number from {least:g} to {most:g} is needed")
        problems += self._wrong_direction() if self.dial else self._wrong_address()
        if not (self.token.isascii() and self.token.isprintable() and len(self.token) <= LONGEST_TOKEN):
            problems.append(f"token: {_ALLOWED['token']}")
        if self.token and not self.dial and not self.coordinator:
            problems.append("token is set without dial: only publishers that are dialled take it")
        if self.tls is not None and self.tls.cert is None and not self.token:
            problems.append("tls names no certificate: one is needed, or dial with a token")
        if self.tls is not None and not self.publishers:
            problems.append(_UNNAMED)
        if self.publishers and self.tls is None:
            problems.append("publishers is set without tls: without certificates no name is known")
        if problems:
            raise ConfigError("subscriber options: " + "; ".join(problems))

    def _wrong_address(self) -> list[str]:
        """Why this subscriber cannot be dialled."""
        host, colon, port = self.listen.rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()):
            return [f'listen = "{self.listen}": host:port is needed, for example 127.0.0.1:0']
        if not self.advertise and host.strip("[]") in {"0.0.0.0", "::", "*"}:
            return [f'listen = "{self.listen}" is every address of this machine: set advertise to one of them']
        if not self.coordinator and not self.advertise and port == "0":
            why = "no publisher could learn the port; set coordinator, or a fixed port, or `dial`"
            return [f'listen = "{self.listen}" without a coordinator: {why}']
        return []

    def _wrong_direction(self) -> list[str]:
        given = [name for name, default in (("listen", ANY_PORT), ("advertise", "")) if getattr(self, name) != default]
        return [f"{name} is set beside dial: a subscriber that dials does not listen" for name in given]

    @property
    def instance(self) -> str:
        """The instance's name: ``id`` or its default."""
        return self.id or f"{socket.gethostname()}-{os.getpid()}"

    @property
    def lasting(self) -> bool:
        """Whether this process keeps its name after a restart, so that a retry delivers its parked updates to it."""
        return bool(self.id) or (self.tls is not None and self.tls.cert is not None)

    @property
    def max_body(self) -> int:
        """The largest batch body in bytes: twice the largest update, because a body has other data besides."""
        return 2 * self.max_update


def read_options(
    given: Mapping[str, object], environ: Mapping[str, str] | None = None, *, shared: bool = False
) -> Options:
    """Options from keyword arguments and the environment (``None``: this process's).

    ``shared``: whether the caller passes a coordinator object of its own, so that no option names one.

    Raises :class:`~wormhole.model.errors.ConfigError` for a wrong value and :class:`~wormhole.model.errors.UsageError`
    for an unknown name.
    """
    environ = os.environ if environ is None else environ
    names = [f.name for f in fields(Options)]
    if unknown := sorted(set(given) - set(names)):
        raise UsageError("; ".join(f'there is no option "{name}"{suggestion(name, names)}' for name in unknown))
    values: dict[str, Any] = {}
    for name in names:
        variable = f"WORMHOLE_{name.upper()}"
        if name in given:
            values[name] = _read(name, given[name], name)
        elif environ.get(variable):
            values[name] = _read(name, environ[variable], variable)
    if shared:
        values["coordinator"] = SHARED
    return Options(**{"application": "", **values})


def _read(name: str, value: Any, where: str) -> Any:
    """The value converted to the option's type. Text is read as from the environment. ``where`` names the option."""
    try:
        match name:
            case "tls" if isinstance(value, str):
                given = [Path(part.strip()) for part in value.split(",")]
                if len(given) <= 2:
                    return _tls_files()[1].model_validate(dict(zip(("ca", "crl"), given, strict=False)))
                cert, key, ca, crl = given if len(given) == 4 else [*given, None]
                return _tls_files()[0].model_validate({"cert": cert, "key": key, "ca": ca, "crl": crl})
            case "tls" if value is None or isinstance(value, _tls_files()):
                return value
            case "publishers":
                return publisher_entries(value)
            case "dial":
                return _addresses(value)
            case "insecure" if isinstance(value, str):
                return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[value.lower()]
            case "retry" if isinstance(value, (str, int)):
                return RetryPolicy(attempts=int(value))
            case "concurrency":
                return _whole(value)
            case "weight":
                return float(value)
            case "handler_timeout" | "stop_timeout":
                return parse_duration(_plain(value))
            case "credit" | "buffer" | "max_frame" | "max_update" | "max_state":
                return parse_size(_plain(value))
            case "coordinator":
                return os.fspath(value)
            case _ if isinstance(value, _TYPES.get(name, ())):
                return value
            case _:
                raise TypeError("text is needed")
    except WormholeError:
        raise
    except (ValueError, TypeError, KeyError) as error:
        if name == "token":
            raise ConfigError(f"{where}: {_ALLOWED[name]}") from None
        raise ConfigError(f"{where} = {value!r}: {_ALLOWED.get(name) or error}") from error


def _addresses(value: Any) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    found = tuple(address.strip() for address in given)
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or port == "0":
            raise ValueError(f"{address!r} is no host:port")
    return found


def _tls_files() -> tuple[type[TlsFiles], type[TlsAuthority]]:
    # Imported here, because the models of the configuration take 0.1 s to import.
    from wormhole.config import TlsAuthority, TlsFiles

    return TlsFiles, TlsAuthority


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (int(value) != value and not isinstance(value, str)):
        raise TypeError("no whole number")
    return int(value)


def _plain(value: Any) -> Any:
    """The value, or a number for text that is only a number."""
    if isinstance(value, str):
        try:
            return float(value) if "." in value else int(value)
        except ValueError:
            return value
    return value
