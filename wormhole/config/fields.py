"""The types of settings' values. Each type has one sentence that states the allowed values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
)

from wormhole.formats.spec import FormatSpec
from wormhole.model.sharding import Sharding
from wormhole.model.units import format_size, parse_duration, parse_rate, parse_size

__all__ = [
    "Address",
    "Addresses",
    "Advertised",
    "HostName",
    "HostNames",
    "LogName",
    "MarkerInterval",
    "Name",
    "Names",
    "PathFromHere",
    "Paths",
    "Rate",
    "Seconds",
    "Settings",
    "ShardBy",
    "Size",
    "Texts",
    "ValueFormat",
    "check_address",
    "check_waits",
    "split_advertised",
]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_LOG_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            "must be a name of at most 64 letters, digits, '_', '.' and '-', starting with a letter or digit"
        )
    return value


def _log_name(value: str) -> str:
    # A shard is written LOG.TABLE, so the first dot must end the log's name.
    if not _LOG_NAME.fullmatch(value):
        raise ValueError("must be a name of at most 64 letters, digits, '_' and '-', starting with a letter or digit")
    return value


def check_address(value: str) -> str:
    """Accept ``host:port`` (IPv6 in brackets; port 0 requests a free one). Raises ``ValueError``."""
    host, colon, port = value.rpartition(":")
    if not colon or not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError('must be an address "host:port", for example "127.0.0.1:7400" or "[::1]:7400"')
    return value


def _path(value: object, info: ValidationInfo) -> Path:
    if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
        raise ValueError("must be a path")
    # A path is relative to the file that contains it, not to the working directory of the process.
    folder = (info.context or {}).get("folder")
    return Path(folder, value) if folder is not None else Path(value)


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("must be more than 0")
    return value


def _marker_interval(value: float) -> float:
    if not 0.001 <= value <= 1.0:
        raise ValueError("must be from 1ms to 1s")
    return value


def _sharding(value: object) -> Sharding:
    allowed = 'must be "log", "database", "table" or { hash = N } with N from 1 to 65536'
    if isinstance(value, Sharding):
        return value
    if isinstance(value, Mapping) and list(value) == ["hash"]:
        count = value["hash"]
        if isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= 65536:
            return Sharding("hash", count)
    elif value in ("log", "database", "table") and isinstance(value, str):
        return Sharding(value)
    raise ValueError(allowed)


def _plain_sharding(value: Sharding) -> object:
    return {"hash": value.count} if value.by == "hash" else value.by


def _plain_rate(value: int) -> str:
    return f"{format_size(value)}/s"


def _value_format(value: object, info: ValidationInfo) -> FormatSpec:
    return FormatSpec.read(value, (info.context or {}).get("folder"))


def _host_name(value: str) -> str:
    if value and (len(value) > 253 or value.startswith("[") or not _HOST.fullmatch(value)):
        raise ValueError('must be the name of a host, such as "db-7" or "db-7.example.org"')
    return value


def split_advertised(value: str) -> tuple[str, str]:
    """The host and the port of ``HOST`` or ``HOST:PORT``, with IPv6 in brackets. A missing port is empty."""
    host, colon, port = value.rpartition(":")
    return (host, port) if colon and not value.endswith("]") else (value, "")


def _advertised(value: str) -> str:
    host, port = split_advertised(value)
    named = value == "" or _HOST.fullmatch(host) is not None
    if not named or value.endswith(":") or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise ValueError('must be "host" or "host:port", for example "db-7.example.org:7490" or "[2001:db8::7]"')
    return value


def _listed_host(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    return _host_name(value)


Name = Annotated[str, AfterValidator(_name)]
LogName = Annotated[str, AfterValidator(_log_name)]
Address = Annotated[str, AfterValidator(check_address)]
HostName = Annotated[str, AfterValidator(_host_name)]
Advertised = Annotated[str, AfterValidator(_advertised)]
# A path is absolute in JSON, because JSON is read in another folder than that of the file.
PathFromHere = Annotated[
    Path, BeforeValidator(_path), PlainSerializer(lambda path: str(path.absolute()), when_used="json-unless-none")
]
# Values are written in their input form, because settings are shown and compared in JSON and TOML.
Size = Annotated[
    int, BeforeValidator(parse_size), AfterValidator(_positive), PlainSerializer(format_size, when_used="json")
]
Rate = Annotated[
    int, BeforeValidator(parse_rate), AfterValidator(_positive), PlainSerializer(_plain_rate, when_used="json")
]
Seconds = Annotated[float, BeforeValidator(parse_duration), AfterValidator(_positive)]
MarkerInterval = Annotated[float, BeforeValidator(parse_duration), AfterValidator(_marker_interval)]
ShardBy = Annotated[Sharding, BeforeValidator(_sharding), PlainSerializer(_plain_sharding)]
ValueFormat = Annotated[FormatSpec, BeforeValidator(_value_format), PlainSerializer(FormatSpec.plain)]


class Settings(BaseModel):
    """Frozen, strict about types (a string is never silently a number) and about unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        populate_by_name=True,
        hide_input_in_errors=True,
        defer_build=True,  # most processes validate only the whole file's model, which has all others built in
    )


def check_waits(first: float, longest: float) -> None:
    if first > longest:
        raise ValueError(f"first_wait ({first:g} s) is longer than longest_wait ({longest:g} s)")


def _listing(value: object) -> object:
    """Make tuples of the arrays of TOML and JSON, because settings cannot change."""
    return tuple(value) if isinstance(value, list) else value


Addresses = Annotated[tuple[Address, ...], BeforeValidator(_listing)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_listing)]
HostNames = Annotated[tuple[Annotated[str, AfterValidator(_listed_host)], ...], BeforeValidator(_listing)]
Paths = Annotated[tuple[PathFromHere, ...], BeforeValidator(_listing)]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_listing)]
