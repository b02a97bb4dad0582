"""What can be configured, as frozen values: meaning, unit, default and its reason stand at each field.

A validator here sees one value or one table. What concerns several tables (an application's dataset must exist) is
checked in :mod:`wormhole.config.load`, which also turns every complaint into one report.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
    model_validator,
)

from wormhole.config.server_url import SERVER_KINDS, ServerUrl
from wormhole.config.units import format_size, parse_duration, parse_rate, parse_size
from wormhole.errors import PositionError
from wormhole.formats.spec import FormatSpec
from wormhole.position import LogPosition
from wormhole.sharding import Sharding

__all__ = [
    "ApplicationConfig",
    "CaravanCaps",
    "Config",
    "CoordinatorConfig",
    "CoordinatorForm",
    "CopyConfig",
    "DatasetConfig",
    "LogConfig",
    "MonitorConfig",
    "PublisherConfig",
    "RestartConfig",
    "RetryConfig",
    "TlsFiles",
    "check_address",
]

MIB: Final = 1 << 20

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
    """Accept ``host:port`` (IPv6 in brackets; port 0 asks for a free one). Raises ``ValueError``."""
    host, colon, port = value.rpartition(":")
    if not colon or not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError('must be an address "host:port", for example "127.0.0.1:7400" or "[::1]:7400"')
    return value


def _path(value: object, info: ValidationInfo) -> Path:
    if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
        raise ValueError("must be a path")
    # Relative to the file that says it, not to wherever the process was started.
    folder = (info.context or {}).get("folder")
    return Path(folder, value) if folder is not None else Path(value)


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("must be more than 0")
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


def _value_format(value: object, info: ValidationInfo) -> FormatSpec:
    return FormatSpec.read(value, (info.context or {}).get("folder"))


def _host_name(value: str) -> str:
    if value and (len(value) > 253 or value.startswith("[") or not _HOST.fullmatch(value)):
        raise ValueError('must be the name of a host, such as "db-7" or "db-7.example.org"')
    return value


Name = Annotated[str, AfterValidator(_name)]
LogName = Annotated[str, AfterValidator(_log_name)]
Address = Annotated[str, AfterValidator(check_address)]
HostName = Annotated[str, AfterValidator(_host_name)]
# Absolute as JSON, since that is read elsewhere than where the file stood.
PathFromHere = Annotated[
    Path, BeforeValidator(_path), PlainSerializer(lambda path: str(path.absolute()), when_used="json-unless-none")
]
Size = Annotated[int, BeforeValidator(parse_size), AfterValidator(_positive)]
Rate = Annotated[int, BeforeValidator(parse_rate), AfterValidator(_positive)]
Seconds = Annotated[float, BeforeValidator(parse_duration), AfterValidator(_positive)]
ShardBy = Annotated[Sharding, BeforeValidator(_sharding), PlainSerializer(_plain_sharding)]
ValueFormat = Annotated[FormatSpec, BeforeValidator(_value_format), PlainSerializer(FormatSpec.plain)]


class _Settings(BaseModel):
    """Frozen, strict about types (a string is never silently a number) and about unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, hide_input_in_errors=True
    )


def _check_waits(first: float, longest: float) -> None:
    if first > longest:
        raise ValueError(f"first_wait ({first:g} s) is longer than longest_wait ({longest:g} s)")


def _listing(value: object) -> object:
    """TOML and JSON have arrays; settings hold tuples, which cannot change."""
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[Name, ...], BeforeValidator(_listing)]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_listing)]


class TlsFiles(_Settings):
    """PEM files for mutual TLS: this process's certificate (chain), its private key, and the authority both sides trust."""

    cert: PathFromHere
    key: PathFromHere
    ca: PathFromHere


class CoordinatorForm(Enum):
    """How publishers and subscribers find each other."""

    ZOOKEEPER = "zookeeper"
    STATIC = "static"
    EMBEDDED = "embedded"
    """The file names neither: whoever reads it embeds a ZooKeeper on loopback, or asks for one of the other two."""


class CoordinatorConfig(_Settings):
    """``[coordinator]``. ``zookeeper``: ``host:port,host:port/root``. ``static``: the addresses stand in this file.

    ``tls`` is for the connection to ZooKeeper; ``auth_file`` holds ``user:password`` for ZooKeeper's digest scheme.
    """

    zookeeper: str = ""
    static: bool = False
    # An owner that lost contact stops after 2/3 of this; its flows wait that long. Ten seconds rides out a leader election.
    session_timeout: Seconds = 10.0
    # How long `start` waits for the first contact before it says that nothing answers.
    connect_timeout: Seconds = 15.0
    tls: TlsFiles | None = None
    auth_file: PathFromHere | None = None

    @field_validator("zookeeper")
    @classmethod
    def _hosts(cls, value: str) -> str:
        hosts, _, root = value.partition("/")
        if value and (not all(_is_host(host.strip()) for host in hosts.split(",")) or "//" in f"/{root}"):
            raise ValueError('must be "host:port,host:port/root", for example "zk1:2181,zk2:2181/wormhole"')
        return value.rstrip("/")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.static and self.zookeeper:
            raise ValueError("static = true and zookeeper exclude each other: keep one")
        return self


def _is_host(text: str) -> bool:
    try:
        return bool(check_address(text)) and not text.endswith(":0")
    except ValueError:
        return False


_SOURCES: Final = "rocksdb:///absolute/path, mysql://user@host:3306 or mariadb://user@host:3306"
_LEAST_RATE: Final = 64 << 10  # bytes per second of a reading cap: less is a mistake in the unit


class PublisherConfig(_Settings):
    """``[publisher]``: what bounds and places every publisher that this file describes. Sizes in bytes, times in seconds."""

    # Bound of the process's memory; everything below is part of it.
    memory_budget: Size = 256 * MIB
    # The last encoded updates, kept so that a flow slightly behind needs no reader of its own.
    change_buffer: Size = 64 * MIB
    # A larger update is delivered without values, marked `too_large`.
    max_update_bytes: Size = 64 * MIB
    # Largest gRPC message; a larger update goes in parts. Well above a batch (256 KiB), below gRPC's own default of 4 MiB.
    max_frame: Size = 1 * MIB
    # `local` needs no service, but belongs to one host; `zookeeper` lets another host take over.
    markers: Literal["local", "zookeeper", "memory"] = "local"
    state_dir: PathFromHere = Path("/var/lib/wormhole")
    admin_listen: Address = "127.0.0.1:0"
    # The publisher's own /metrics, /healthz and /readyz.
    http_listen: Address = "127.0.0.1:0"
    # Names (CN or a DNS name) of certificates that may change things. Subscribers hold certificates of the same authority, so being
    # trusted is not enough.
    admins: Texts = ()
    # Most parked updates of one flow; then the flow halts, since a store that grows without end is a loss with a delay.
    dead_letters: int = Field(default=1000, ge=1, le=1_000_000)
    # How long a vanished subscriber may stay away before its shards move.
    grace_period: Seconds = 5.0
    # How long a handler may run; a subscriber that was told to let go is waited for that long.
    handler_timeout: Seconds = 60.0
    # Each side sends something at least this often; three missed ones end the stream.
    heartbeat: Seconds = 3.0
    # How long a graceful stop waits for subscribers to finish what they hold.
    stop_timeout: Seconds = 20.0

    @model_validator(mode="after")
    def _possible(self) -> Self:
        problems = []
        if self.change_buffer + self.max_update_bytes > self.memory_budget:
            problems.append(
                f"change_buffer ({format_size(self.change_buffer)}) and max_update_bytes ({format_size(self.max_update_bytes)}) "
                f"together must fit memory_budget ({format_size(self.memory_budget)})"
            )
        if not 64 << 10 <= self.max_frame <= 64 * MIB:
            problems.append(f"max_frame is {format_size(self.max_frame)}; allowed is 64KiB to 64MiB")
        if self.memory_budget < 64 * MIB:
            problems.append(f"memory_budget is {format_size(self.memory_budget)}; a publisher needs at least 64MiB")
        if problems:
            raise ValueError("; ".join(problems))
        return self


class RestartConfig(_Settings):
    """How a publisher that ended by itself is started again: after ``first_wait``, then longer, up to ``longest_wait`` (seconds).

    ``crashes`` ends within ``within`` seconds are a crash loop: it is given up loudly until the configuration changes.
    """

    first_wait: Seconds = 0.5
    longest_wait: Seconds = 30.0
    crashes: int = Field(default=5, ge=1, le=1000)
    within: Seconds = 60.0

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _check_waits(self.first_wait, self.longest_wait)
        return self


class MonitorConfig(_Settings):
    """``[monitor]``: the process that runs this host's publishers. ``state_dir``: see :attr:`Config.monitor_state_dir`."""

    # What the logs' `host` names; empty: the name that the machine gives itself.
    host: HostName = ""
    state_dir: PathFromHere | None = None
    # Status page, /metrics, /healthz and /readyz; port 0 takes a free one.
    listen: Address = "127.0.0.1:7480"
    # How long a publisher may take to end. More than its own stop_timeout, within which it waits for subscribers.
    stop_timeout: Seconds = 30.0
    restart: RestartConfig = RestartConfig()

    @property
    def host_name(self) -> str:
        """The host that this monitor speaks for."""
        return self.host or socket.gethostname()


class CaravanCaps(_Settings):
    """Limits on reading one log: how many readers at most, bytes per second of one and of all. ``None``: no limit."""

    max: int = Field(default=4, ge=1, le=1000)
    max_read_rate: Rate | None = None
    max_total_read_rate: Rate | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        one, all_ = self.max_read_rate, self.max_total_read_rate
        problems = []
        for name, rate in (("max_read_rate", one), ("max_total_read_rate", all_)):
            if rate is not None and rate < _LEAST_RATE:
                problems.append(
                    f"{name} is {format_size(rate)}/s; below {format_size(_LEAST_RATE)}/s a log is not followed but lost"
                )
        if one is not None and all_ is not None and one > all_:
            problems.append(
                f"max_read_rate ({format_size(one)}/s) is more than max_total_read_rate ({format_size(all_)}/s): "
                "one reader can never exceed all of them together"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self


class LogConfig(_Settings):
    """One datastore's log. ``host``: where its publisher runs (empty: on any host that is told to).

    ``password_file``: of the account that ``source`` names; for servers only.
    """

    source: str
    password_file: PathFromHere | None = None
    host: HostName = ""
    # RocksDB deletes its log files; those still needed are kept by hard links here (default: beside the database, as they
    # must be on the same file system) ...
    pin_folder: PathFromHere | None = None
    # ... up to this many bytes, after which the oldest go and the flows that needed them report data loss.
    pin_budget: Size = 4096 * MIB
    # Replication ids of the readers, "first-last"; default: sixteen made from the log's name.
    server_ids: str = ""
    # Tables of a server of which nothing is decoded nor delivered, as "database.table": the way past one whose rows cannot be read.
    skip_tables: Texts = ()

    @field_validator("skip_tables")
    @classmethod
    def _tables(cls, value: Texts) -> Texts:
        if bad := [name for name in value if not all(name.partition("."))]:
            raise ValueError(f'{bad[0]!r} must be "database.table"')
        return value

    @field_validator("server_ids")
    @classmethod
    def _id_range(cls, value: str) -> str:
        head, _, tail = value.partition("-")
        if value and not (head.isdecimal() and tail.isdecimal() and 0 < int(head) <= int(tail) < 1 << 32):
            raise ValueError('must be "first-last" with ids from 1 to 4294967295, for example "4001-4016"')
        return value

    @field_validator("source")
    @classmethod
    def _url(cls, value: str) -> str:
        try:
            url = urlsplit(value)
            password = url.password
        except ValueError:
            raise ValueError(f"must be a URL such as {_SOURCES}") from None
        if password is not None:
            raise ValueError("must not hold a password: put it into a file of its own and name that with password_file")
        if url.scheme in SERVER_KINDS:
            if not ServerUrl.parse(value).user:
                raise ValueError(f"must name the account: {url.scheme}://user@host:3306")
            return value
        if url.scheme != "rocksdb":
            raise ValueError(f"must be {_SOURCES}: this release tails RocksDB, MySQL and MariaDB")
        if url.netloc or not url.path.startswith("/") or url.query or url.fragment:
            raise ValueError("must be rocksdb:///absolute/path, with three slashes and nothing behind the path")
        return value

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.kind in SERVER_KINDS:
            if self.pin_folder is not None:
                raise ValueError("pin_folder is for RocksDB: a server keeps its log itself")
        elif self.password_file is not None:
            raise ValueError("password_file is for servers: a RocksDB has no password")
        elif self.server_ids:
            raise ValueError("server_ids is for servers: a RocksDB is not asked over a network")
        elif self.skip_tables:
            raise ValueError("skip_tables is for servers: a RocksDB has column families, which filters leave out")
        return self

    @property
    def kind(self) -> str:
        """The scheme of ``source``."""
        return self.source.partition(":")[0]


class CopyConfig(_Settings):
    """One replica of a dataset."""

    logs: Mapping[LogName, LogConfig] = Field(min_length=1)


class DatasetConfig(_Settings):
    """A named body of data: how it is split into shards, its copies, and the caps on reading each log.

    ``value_format``: what the values of a store of bytes hold, so that filters can test their fields; ``values``: the same for single
    tables. Nothing about it is checked here: :func:`wormhole.formats.open_formats` opens descriptor sets where they are needed.
    """

    name: Name
    shard_by: ShardBy = Sharding("log")
    value_format: ValueFormat | None = None
    values: Mapping[str, ValueFormat] = Field(default_factory=dict)
    caravans: CaravanCaps = CaravanCaps()
    copies: Mapping[Name, CopyConfig] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits_its_sources(self) -> Self:
        kinds = {log.kind for one in self.copies.values() for log in one.logs.values()}
        if self.shard_by.by == "database" and "rocksdb" in kinds:
            raise ValueError(
                'shard_by = "database" needs a source that has databases; in RocksDB, split by "table" (column family)'
            )
        if (self.value_format is not None or self.values) and kinds & set(SERVER_KINDS):
            raise ValueError(
                "value_format and values are for stores of bytes: a server's columns have types of their own"
            )
        if "rocksdb" in kinds and len(kinds) > 1:
            raise ValueError("the copies of a dataset must be of one kind: all RocksDB, or all servers")
        return self


# What mysqldump and mariadb-dump record: `uuid:1-5,uuid:tag:1-3`, lines allowed, `0-1-17,1-2-5`, and `binlog.000012:4711`.
_SERVER_PLACE: Final = re.compile(
    r"(?ai)\s*(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\s*:\s*[0-9a-z_-]+)+|\d+-\d+-\d+)"
    r"(?:\s*,\s*(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\s*:\s*[0-9a-z_-]+)+|\d+-\d+-\d+))*\s*"
    r"|[^/\s:]+\.\d+:\d+"
)


class RetryConfig(_Settings):
    """How a subscriber retries an update whose handler failed. ``attempts`` counts the first try; waits in seconds."""

    attempts: int = Field(default=8, ge=1, le=1_000_000)
    first_wait: Seconds = 0.1
    longest_wait: Seconds = 60.0

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _check_waits(self.first_wait, self.longest_wait)
        return self


class ApplicationConfig(_Settings):
    """What one application receives. ``copy`` in the file is :attr:`from_copy` here.

    ``tables``: the tables (RocksDB: column families) it wants, all when empty. ``where``: a filter's text, all when empty
    (:mod:`wormhole.filters` parses both). ``allow``: names of the subscribers that may receive it, any when empty.
    ``on_failure``: what becomes of an update whose retries are exhausted: the flow stands at it, or it is parked with what follows of its row.
    ``on_bad_value``: what becomes of the flow when a value that the filter tests is not of the declared format; it is delivered and
    counted either way. ``pin``: shard to subscriber id. ``subscribers``: id to address, in the static form only.
    """

    name: Name
    dataset: Name
    from_copy: Annotated[str, Field(alias="copy")] = ""
    tables: Texts = ()
    where: str = ""
    start: str
    retry: RetryConfig = RetryConfig()
    on_failure: Literal["halt", "park"] = "halt"
    on_bad_value: Literal["deliver", "halt"] = "deliver"
    allow: Names = ()
    pin: Mapping[str, Name] = Field(default_factory=dict)
    subscribers: Mapping[Name, Address] = Field(default_factory=dict)

    @field_validator("start")
    @classmethod
    def _place(cls, value: str) -> str:
        if value not in ("latest", "earliest") and not _SERVER_PLACE.fullmatch(value):
            try:
                LogPosition.parse(value)
            except PositionError:
                raise ValueError(
                    'must be "latest", "earliest", a place such as "1/42/32768", or what a dump of a MySQL or MariaDB records: GTIDs, "binlog.000012:4711"'
                ) from None
        return value

    @property
    def starts_in_a_server(self) -> bool:
        """Whether ``start`` is a place that only a server's log has."""
        return bool(_SERVER_PLACE.fullmatch(self.start))

    @model_validator(mode="after")
    def _allowed_are_consistent(self) -> Self:
        if self.allow:
            strangers = sorted({*self.subscribers, *self.pin.values()} - set(self.allow))
            if strangers:
                raise ValueError(f"allow does not list {', '.join(strangers)}, which subscribers or pin name")
        return self

    def allows(self, subscriber: str) -> bool:
        """Whether the subscriber of this id may receive the application's updates."""
        return not self.allow or subscriber in self.allow


class Config(_Settings):
    """A whole configuration file. ``insecure = true`` permits listening beyond loopback without TLS."""

    version: Literal[1]
    insecure: bool = False
    tls: TlsFiles | None = None
    coordinator: CoordinatorConfig = CoordinatorConfig()
    publisher: PublisherConfig = PublisherConfig()
    monitor: MonitorConfig = MonitorConfig()
    datasets: Mapping[Name, DatasetConfig] = Field(default_factory=dict)
    applications: Mapping[Name, ApplicationConfig] = Field(default_factory=dict)

    @property
    def monitor_state_dir(self) -> Path:
        """Where the monitor keeps its state: its ``state_dir``, or beside that of its publishers."""
        return self.monitor.state_dir or self.publisher.state_dir / "monitor"

    @property
    def form(self) -> CoordinatorForm:
        """ZooKeeper where one is named; static when the file says so or lists subscribers; else embedded."""
        if self.coordinator.zookeeper:
            return CoordinatorForm.ZOOKEEPER
        if self.coordinator.static or any(app.subscribers for app in self.applications.values()):
            return CoordinatorForm.STATIC
        return CoordinatorForm.EMBEDDED
