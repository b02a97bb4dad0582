"""What can be configured, as frozen values: each field has its meaning, unit, default and the reason.

A validator here sees one value or one table. Checks of several tables (an application's dataset must exist) are in
:mod:`wormhole.config.load`, which also collects all problems into one report. ``fields`` has the kinds of values,
``processes`` the settings of a host's processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from wormhole.config.datastores import datastore, forms, is_one_datastore, is_place, schemes
from wormhole.config.fields import (
    Address,
    HostName,
    HostNames,
    LogName,
    MarkerInterval,
    Name,
    Names,
    PathFromHere,
    Rate,
    Seconds,
    Settings,
    ShardBy,
    Size,
    Texts,
    ValueFormat,
    check_waits,
)
from wormhole.config.processes import CoordinatorConfig, CoordinatorForm, MonitorConfig, PublisherConfig, TlsFiles
from wormhole.config.sinks import SinkTable
from wormhole.model.errors import PositionError, UsageError
from wormhole.model.position import LogPosition
from wormhole.model.sharding import Sharding
from wormhole.model.suggestion import suggestion
from wormhole.model.units import format_size, parse_time
from wormhole.ports.datastore import Datastore

__all__ = [
    "EXISTING",
    "FAILOVER",
    "ApplicationConfig",
    "ArchiveConfig",
    "CaravanCaps",
    "Config",
    "CopyConfig",
    "DatasetConfig",
    "ExistingRows",
    "FailoverConfig",
    "LogConfig",
    "RetryConfig",
    "SourceConfig",
    "named_logs",
]

MIB: Final = 1 << 20

EXISTING: Final = "existing"
"""An application's ``start``: the rows that its tables hold, and every change from now on."""

FAILOVER: Final = "@failover"
"""The group of the copies that serve a dataset one at a time; no copy can have this name."""

SOURCE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(/[A-Za-z0-9][A-Za-z0-9_.-]{0,63}){0,2}", re.ASCII)
"""The name of a source that a host lists. A source in a log's own table has the name ``DATASET/COPY/LOG``."""
_STARTS: Final = ("latest", "earliest", EXISTING)
_PIN_BUDGET: Final = 4096 * MIB
_LEAST_ROWS_MEMORY: Final = 4 * MIB
_LEAST_RATE: Final = 64 << 10  # bytes per second of a read cap: a smaller value is a mistake in the unit
_RELAY_BUDGET: Final = 8192 * MIB
_LEAST_RELAY: Final = 64 * MIB  # the size of one relay file: a smaller limit would remove the file being written


class CaravanCaps(Settings):
    """Limits on reading one log: the number of readers, and bytes per second of one reader and of all. ``None``: no
    limit.
    """

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
                    f"{name} is {format_size(rate)}/s; below {format_size(_LEAST_RATE)}/s a log is not "
                    "followed but lost"
                )
        if one is not None and all_ is not None and one > all_:
            problems.append(
                f"max_read_rate ({format_size(one)}/s) is more than max_total_read_rate ({format_size(all_)}/s): "
                "one reader can never exceed all of them together"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self


class ExistingRows(Settings):
    """Limits on reading the existing rows of one log's tables for backfills.

    ``rate``: bytes of rows per second. ``memory``: bytes of rows that wait to enter the log, and of changes that arrive
    meanwhile.
    """

    rate: Rate = 8 * MIB
    memory: Size = 32 * MIB

    @field_validator("memory")
    @classmethod
    def _holds_a_chunk(cls, value: int) -> int:
        if value < _LEAST_ROWS_MEMORY:
            raise ValueError(f"must be at least {format_size(_LEAST_ROWS_MEMORY)}: a chunk of rows takes so much")
        return value


def _source_name(value: str) -> str:
    if not SOURCE_NAME.fullmatch(value):
        raise ValueError("must be a name of letters, digits, '_', '.' and '-', or DATASET/COPY/LOG")
    return value


SourceName = Annotated[str, AfterValidator(_source_name)]


class _PlaceSettings(Settings):
    """The settings of a log for the host that reads it, in ``[sources.NAME]`` or in the log's own table of a file.

    ``password_file``: the password file of the account that ``source`` names; for servers only. ``relay``: whether the
    publisher records the log that it reads on its own disk, so that flows that are behind read the record; ``None``:
    see :mod:`wormhole.config.relay`. ``slot_budget`` and ``on_relay_full`` are for ``hold``.
    """

    source: str
    password_file: PathFromHere | None = None
    # For a datastore of files, which deletes its log: hard links here keep the files that are still needed. The default
    # is a folder beside the database, because both must be on the same file system.
    pin_folder: PathFromHere | None = None
    # Limit in bytes of the kept files. Beyond it the oldest are deleted, and the flows that needed them report data
    # loss.
    pin_budget: Size = _PIN_BUDGET
    # For a server that deletes its log: a folder of closed log files, which are read when the server no longer has
    # them.
    binlog_folder: PathFromHere | None = None
    relay: Literal["off", "cache", "hold"] | None = None
    relay_folder: PathFromHere | None = None
    relay_budget: Size = _RELAY_BUDGET
    # The bytes of log that the datastore keeps for flows that are behind. Only the relay holds older log.
    slot_budget: Size | None = None
    # The action when the budget is used and a flow needs the oldest file: the flow loses it, or the datastore keeps
    # its log from there on.
    on_relay_full: Literal["lose", "keep_slot"] | None = None
    relay_compression: Literal["zstd", "none"] = "zstd"

    @field_validator("relay_budget")
    @classmethod
    def _holds_a_file(cls, value: int) -> int:
        if value < _LEAST_RELAY:
            raise ValueError(f"must be at least {format_size(_LEAST_RELAY)}: one file of a relay takes so much")
        return value


class SourceConfig(_PlaceSettings):
    """``[sources.NAME]``: a log of this host, which a dataset may choose by its name.

    Every setting that names a file, a folder or an address is here, in a file of the host. So no other process can
    write it.
    """

    @field_validator("source")
    @classmethod
    def _url(cls, value: str) -> str:
        return _checked_source(value)

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        _check_place(self)
        return self

    @property
    def kind(self) -> str:
        """The scheme of ``source``."""
        return self.source.partition(":")[0]


def _check_place(place: SourceConfig | LogConfig) -> None:
    found = _datastore(place.kind)
    for name, reason in found.refuses.items():
        if getattr(place, name, None):
            raise ValueError(f"{name} is not for {found.capabilities.title}: {reason}")
    if place.relay == "hold" and not found.holds_log:
        raise ValueError(
            f'relay = "hold" is not for {found.capabilities.title}: no log is kept there for its reader; use "cache"'
        )
    if place.relay in ("off", "cache") or not found.holds_log:
        check_needs_hold(place)


def check_needs_hold(place: _PlaceSettings) -> None:
    """Raise ``ValueError`` for a setting that only ``relay = "hold"`` has, if ``relay`` has another value."""
    for name in ("slot_budget", "on_relay_full"):
        if getattr(place, name) is not None:
            raise ValueError(f'{name} is for relay = "hold" only: otherwise the relay never frees the datastore\'s log')


def _datastore(kind: str) -> Datastore:
    try:
        return datastore(kind)
    except UsageError as error:
        raise ValueError(f"must be {forms()}: {error.message}" if kind not in schemes() else str(error)) from None


def _checked_source(value: str) -> str:
    try:
        url = urlsplit(value)
        password = url.password
    except ValueError:
        raise ValueError(f"must be a URL such as {forms()}") from None
    if password is not None:
        raise ValueError("must not hold a password: put it into a file of its own and name that with password_file")
    _datastore(url.scheme).check_url(value, configured=True)
    return value


class LogConfig(_PlaceSettings):
    """One datastore's log.

    ``host``: where its publisher runs (empty: on any host whose monitor is configured to). ``hosts``: an alternative to
    ``host``: the hosts of which one at a time serves the log, the preferred one first; all of them read the same
    server.

    ``source``: the name of a source that its host lists (:class:`SourceConfig`), of the kind ``named_kind``. In a file
    it may be the source itself, together with all settings that the host's list would have for it. The log's table is
    then the list of the host that reads the file.
    """

    named_kind: Annotated[str, Field(alias="kind")] = ""
    host: HostName = ""
    hosts: HostNames = ()
    # Replication ids of the readers, "first-last"; default: sixteen made from the log's name.
    server_ids: str = ""
    # Tables of a server that are neither decoded nor delivered, as "database.table" or "database.*". With it a log can
    # be read although the rows or the name of a table cannot.
    skip_tables: Texts = ()
    # System-versioned tables whose rows are delivered as they are logged, with those of their history, as
    # "database.table".
    history_tables: Texts = ()

    @field_validator("skip_tables", "history_tables")
    @classmethod
    def _tables(cls, value: Texts) -> Texts:
        if bad := [name for name in value if not name.startswith("@") and not all(name.partition("."))]:
            raise ValueError(f'{bad[0]!r} must be "database.table"')
        return value

    @field_validator("hosts")
    @classmethod
    def _several_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) == 1:
            raise ValueError("must list at least two hosts; a log with one host names it as `host`")
        if twice := _first_double(value):
            raise ValueError(f"must list {twice} once: the order is that of preference")
        return value

    @field_validator("server_ids")
    @classmethod
    def _id_range(cls, value: str) -> str:
        head, _, tail = value.partition("-")
        if value and not (head.isdecimal() and tail.isdecimal() and 0 < int(head) <= int(tail) < 1 << 32):
            raise ValueError('must be "first-last" with ids from 1 to 4294967295, for example "4001-4016"')
        return value

    @field_validator("named_kind")
    @classmethod
    def _known_kind(cls, value: str) -> str:
        if value and value not in schemes():
            raise ValueError(f"must be one of {', '.join(schemes())}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _kind_of_name(cls, given: object, info: ValidationInfo) -> object:
        kinds = (info.context or {}).get("kinds", {})
        source = given.get("source") if isinstance(given, Mapping) and "kind" not in given else None
        if isinstance(given, Mapping) and isinstance(source, str) and source in kinds:
            return {**given, "kind": kinds[source]}
        return given

    @field_validator("source")
    @classmethod
    def _url_or_name(cls, value: str) -> str:
        return value if SOURCE_NAME.fullmatch(value) else _checked_source(value)

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.inline is None:
            own = sorted(self.model_fields_set & (_PlaceSettings.model_fields.keys() - {"source"}))
            if own:
                raise ValueError(f"{own[0]} belongs to the source, in [sources.{self.source}] of its host")
            if not self.named_kind:
                raise ValueError(
                    f"must be {forms()}; or the name of a source: add [sources.{self.source}] here, or say "
                    "what its host "
                    f"lists by that name: kind = one of {', '.join(schemes())}"
                )
        elif self.named_kind not in ("", self.kind):
            raise ValueError(f'kind = "{self.named_kind}" is another one than that of source')
        _check_place(self)
        if self.hosts:
            self._check_hosts()
        return self

    def _check_hosts(self) -> None:
        if self.host:
            raise ValueError("host and hosts exclude each other: keep `hosts` for several candidates, `host` for one")
        found = _datastore(self.kind)
        if found.one_host:
            title = found.capabilities.title
            raise ValueError(f"hosts is not for {title}: {found.one_host}; name that host as `host`")

    @property
    def candidates(self) -> tuple[str, ...]:
        """The hosts that may serve the log, the preferred one first; empty if it names none."""
        return self.hosts or ((self.host,) if self.host else ())

    @property
    def kind(self) -> str:
        """The scheme of the source, which is given here or in the list of its host."""
        return self.source.partition(":")[0] if ":" in self.source else self.named_kind

    @property
    def inline(self) -> SourceConfig | None:
        """The source itself; ``None`` if only its name is given."""
        if ":" not in self.source:
            return None
        return SourceConfig.model_validate({name: getattr(self, name) for name in _PlaceSettings.model_fields})


class CopyConfig(Settings):
    """One replica of a dataset."""

    logs: Mapping[LogName, LogConfig] = Field(min_length=1)


class FailoverConfig(Settings):
    """``[datasets.NAME.failover]``: each log of the dataset is served from one of ``copies`` at a time, the preferred
    one first.

    ``patience``: for how many seconds a copy that lacks delivered updates leaves a log without a publisher, so that a
    copy that has them can take it.
    """

    copies: Names
    patience: Seconds = 30.0

    @field_validator("copies")
    @classmethod
    def _several(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if twice := _first_double(value):
            raise ValueError(f"must list {twice} once: the order is that of preference")
        if len(value) < 2:
            raise ValueError("must list at least two copies of the dataset, the preferred one first")
        return value


def _first_double(names: Sequence[str]) -> str:
    """The first name that is listed twice; empty if each is listed once."""
    return next((name for i, name in enumerate(names) if name in names[:i]), "")


_ARCHIVES: Final = "s3://bucket/folder or hdfs://host:port/folder"


def _no_patterns(path: str) -> str:
    if set(path) & set("{}[]*?\\"):
        raise ValueError("must not hold any of { } [ ] * ? \\, which Spark reads as patterns")
    return path


def _checked_archive_url(scheme: str, value: str) -> str:
    try:
        url = urlsplit(value)
        secret = url.username is not None or url.password is not None
        options = {name for name, _ in parse_qsl(url.query, keep_blank_values=True)}
    except ValueError:
        raise ValueError(f"must be a folder, {_ARCHIVES}") from None
    if secret or options & {"access_key", "secret_key", "session_token", "password"}:
        raise ValueError(
            "must not hold a password or key: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, "
            "~/.aws/credentials or an instance role"
        )
    if scheme not in {"s3", "hdfs"} or not url.netloc or len(url.path) < 2 or url.fragment:
        raise ValueError(f"must be a folder, {_ARCHIVES}")
    if unknown := sorted(options - (_S3_OPTIONS if scheme == "s3" else set())):
        raise ValueError(f"does not know the option {unknown[0]}; S3 has {', '.join(sorted(_S3_OPTIONS))}")
    _no_patterns(url.path)
    return value


_S3_OPTIONS: Final = {"region", "endpoint_override", "scheme"}


class ArchiveConfig(Settings):
    """Where every update of a dataset is stored as Parquet, for replay, queries and audit. ``wormholectl archive run``
    writes it.

    ``to``: a folder, or a URL that pyarrow supports: ``s3://bucket/folder``, ``hdfs://host:port/folder``. Passwords and
    keys are not given here. ``application``: the application as which the archiver subscribes; it must be configured,
    without a filter. A file is written every ``flush_every`` seconds, or at ``flush_size`` bytes of updates in memory.
    ``keep``: how long files are kept, in seconds; ``None``: for ever. ``compact``: whether the archiver merges small
    files by itself (``auto``).
    """

    to: str
    application: Name = "archive"
    flush_every: Seconds = 60.0
    flush_size: Size = 64 * MIB
    keep: Seconds | None = None
    compact: Literal["off", "auto"] = "off"

    @field_validator("to")
    @classmethod
    def _place_to(cls, value: str, info: ValidationInfo) -> str:
        scheme, colon, _ = value.partition("://")
        if colon:
            return _checked_archive_url(scheme, value)
        if not value or "\0" in value or value.startswith("~"):
            raise ValueError(f"must be a folder, {_ARCHIVES}")
        # Like every path it is relative to the file that holds it.
        folder = (info.context or {}).get("folder")
        return _no_patterns(str(Path(folder, value).absolute()) if folder is not None else value)


class DatasetConfig(Settings):
    """A named body of data: how it is split into shards, its copies, and the caps on reading each log.

    ``failover``: the copies that serve one at a time; ``None``: each copy serves the applications that name it.
    ``value_format``: the format of the values in a store of bytes, so that filters can test their fields; ``values``:
    the same for single tables. Formats are not checked here: :func:`wormhole.formats.open_formats` opens descriptor
    sets where they are needed.
    """

    name: Name
    shard_by: ShardBy = Sharding("log")
    value_format: ValueFormat | None = None
    values: Mapping[str, ValueFormat] = Field(default_factory=dict)
    caravans: CaravanCaps = CaravanCaps.model_construct()
    existing_rows: ExistingRows = ExistingRows.model_construct()
    archive: ArchiveConfig | None = None
    failover: FailoverConfig | None = None
    copies: Mapping[Name, CopyConfig] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits_its_sources(self) -> Self:
        if not is_one_datastore(*self.kinds):
            raise ValueError(f"the copies of a dataset must be of one kind of datastore, not {', '.join(self.kinds)}")
        found = _datastore(self.kinds[0])
        if self.shard_by.by == "database" and not found.capabilities.databases:
            raise ValueError(
                'shard_by = "database" needs a source that has databases; '
                f'in {found.capabilities.title}, split by "table" ({found.table_words[0]})'
            )
        if (self.value_format is not None or self.values) and not found.capabilities.of_bytes:
            raise ValueError(
                "value_format and values are for stores of bytes: "
                f"the columns of {found.capabilities.title} have types of their own"
            )
        if self.failover is not None:
            self._check_failover(self.failover, found)
        return self

    def _check_failover(self, failover: FailoverConfig, found: Datastore) -> None:
        title = found.capabilities.title
        if found.one_host:
            raise ValueError(f"failover is not for {title}: {found.one_host}")
        if found.on_a_disk:
            raise ValueError(
                f"failover is not for {title}: what is known of its log is kept beside its files, and shows nothing of "
                "another copy's; where the disk with both moves from host to host, list these as `hosts` of one copy"
            )
        first, *others = failover.copies
        for copy in failover.copies:
            if copy not in self.copies:
                raise ValueError(
                    f"failover.copies lists {copy}, which is no copy of the dataset{suggestion(copy, self.copies)}"
                )
        logs = self.copies[first].logs.keys()
        for copy in others:
            if differing := sorted(self.copies[copy].logs.keys() ^ logs):
                raise ValueError(
                    f"failover.copies: only one of the copies {first} and {copy} has the log {differing[0]}; copies "
                    "that serve for each other have logs of the same names"
                )

    def each_log(self) -> Iterator[tuple[str, str, LogConfig]]:
        """Every log of every copy: the copy's name, the log's name, and the log's settings."""
        for copy, settings in self.copies.items():
            for name, log in settings.logs.items():
                yield copy, name, log

    @property
    def kinds(self) -> list[str]:
        """The kinds of its logs, each once. Several kinds belong to one datastore."""
        return sorted({log.kind for _, _, log in self.each_log()})

    def failover_of(self, copy: str) -> FailoverConfig | None:
        """The failover that ``copy`` takes part in; ``None`` for a copy that serves by itself."""
        return self.failover if self.failover is not None and copy in self.failover.copies else None

    def group(self, copy: str) -> str:
        """The group that contends for the logs of ``copy``: :data:`FAILOVER` for copies that serve one at a time, else
        its own name.
        """
        return copy if self.failover_of(copy) is None else FAILOVER

    def earlier_groups(self, copy: str) -> tuple[str, ...]:
        """The groups that may have contended for the logs of ``copy`` before a failover was configured, or removed."""
        failover = self.failover_of(copy)
        return (FAILOVER,) if failover is None else failover.copies

    def serves(self, copy: str, from_copy: str) -> bool:
        """Whether publishers of ``copy`` serve an application whose setting ``copy`` is ``from_copy`` (empty: not set).

        An application without the setting belongs to the copies of the failover, or to the only copy.
        """
        if from_copy:
            return self.group(copy) == from_copy
        return self.group(copy) == FAILOVER if self.failover is not None else len(self.copies) == 1


def named_logs(datasets: Mapping[str, DatasetConfig]) -> Iterator[tuple[str, LogConfig]]:
    """Every log of the datasets, by ``DATASET/COPY/LOG``."""
    for name, dataset in datasets.items():
        for copy, log, settings in dataset.each_log():
            yield f"{name}/{copy}/{log}", settings


def _is_order(text: str) -> bool:
    try:
        LogPosition.parse(text)
    except PositionError:
        return False
    return True


def _is_place(text: str) -> bool:
    return _is_order(text) or is_place(text)


class RetryConfig(Settings):
    """How a subscriber retries an update whose handler failed. ``attempts`` includes the first try; waits are in
    seconds.
    """

    attempts: int = Field(default=8, ge=1, le=1_000_000)
    first_wait: Seconds = 0.1
    longest_wait: Seconds = 60.0

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_waits(self.first_wait, self.longest_wait)
        return self


class ApplicationConfig(Settings):
    """What one application receives. ``copy`` in the file is :attr:`from_copy` here.

    ``tables``: the tables that it wants; empty: all. ``where``: a filter's text; empty: all updates
    (:mod:`wormhole.filters` parses both). ``columns``: the columns that are sent; empty: all. ``mask``: columns that
    are sent as a hash or as NULL (:mod:`wormhole.filters.projection`). ``allow``: names of the subscribers that may
    receive it; empty: any. ``pin``: shard to subscriber id. ``connect``: whether publishers dial its subscribers, or
    subscribers dial the publishers. ``subscribers``: id to address, in the static form only.

    ``on_failure``: what happens after an update's retries are exhausted: the flow halts at it, or the update is parked
    with the later ones of its row. ``on_bad_value``: what happens to the flow when a value that the filter tests is not
    of the declared format; the update is delivered and counted in both cases. ``marker_interval``: how often a
    datamarker is offered while there are updates, in seconds.
    """

    name: Name
    dataset: Name
    from_copy: Annotated[str, Field(alias="copy")] = ""
    tables: Texts = ()
    where: str = ""
    columns: Texts = ()
    mask: Mapping[str, Literal["hash", "null"]] = Field(default_factory=dict)
    start: str
    retry: RetryConfig = RetryConfig.model_construct()
    on_failure: Literal["halt", "park"] = "halt"
    on_bad_value: Literal["deliver", "halt"] = "deliver"
    marker_interval: MarkerInterval = 1.0
    allow: Names = ()
    pin: Mapping[str, Name] = Field(default_factory=dict)
    connect: Literal["subscriber", "publisher"] = "subscriber"
    subscribers: Mapping[Name, Address] = Field(default_factory=dict)

    @field_validator("start")
    @classmethod
    def _place(cls, value: str) -> str:
        if value not in _STARTS and parse_time(value) is None and not _is_place(value):
            raise ValueError(
                'must be "latest", "existing", "earliest", a time such as "2026-05-01T12:00:00Z", a place such as '
                '"1/42/32768", or a logical position of the log as its datastore writes it, such as a dump records'
            )
        return value

    @property
    def starts_at_logical_position(self) -> bool:
        """Whether ``start`` has the form of a logical position of one kind of datastore."""
        return self.starts_at_place and not _is_order(self.start)

    @property
    def starts_at_place(self) -> bool:
        """Whether ``start`` has a meaning in one log only."""
        return self.start not in _STARTS and parse_time(self.start) is None

    @model_validator(mode="after")
    def _allowed_are_consistent(self) -> Self:
        if self.connect == "publisher" and self.subscribers:
            raise ValueError('subscribers is not for connect = "publisher": subscribers that dial need no address')
        if self.allow:
            strangers = sorted({*self.subscribers, *self.pin.values()} - set(self.allow))
            if strangers:
                raise ValueError(f"allow does not list {', '.join(strangers)}, which subscribers or pin name")
        return self

    def allows(self, subscriber: str) -> bool:
        """Whether the subscriber of this id may receive the application's updates."""
        return not self.allow or subscriber in self.allow


class Config(Settings):
    """A whole configuration file.

    ``insecure = true`` permits listening beyond loopback without TLS. ``sources``: the sources among which this host
    allows datasets to choose (:mod:`wormhole.config.sources`); ``None``: the file has no list. ``sinks``: the stores
    that this host fills.
    """

    version: Literal[1]
    insecure: bool = False
    tls: TlsFiles | None = None
    coordinator: CoordinatorConfig = CoordinatorConfig.model_construct()
    sources: Mapping[SourceName, SourceConfig] | None = None
    sinks: Mapping[Name, SinkTable] = Field(default_factory=dict)
    publisher: PublisherConfig = PublisherConfig.model_construct()
    monitor: MonitorConfig = MonitorConfig.model_construct()
    datasets: Mapping[Name, DatasetConfig] = Field(default_factory=dict)
    applications: Mapping[Name, ApplicationConfig] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _runs_sinks_that_it_has(self) -> Self:
        for name in self.monitor.sinks:
            if name not in self.sinks:
                raise ValueError(f"monitor.sinks names {name}, which is no table [sinks.{name}]")
        return self

    @property
    def monitor_state_dir(self) -> Path:
        """The state folder of the monitor: its ``state_dir``, or a folder beside that of its publishers."""
        return self.monitor.state_dir or self.publisher.state_dir / "monitor"

    @property
    def form(self) -> CoordinatorForm:
        """The form of coordination: ZooKeeper if one is named; static if the file sets it or lists subscribers; else
        embedded.
        """
        if self.coordinator.zookeeper:
            return CoordinatorForm.ZOOKEEPER
        if self.coordinator.static or any(app.subscribers for app in self.applications.values()):
            return CoordinatorForm.STATIC
        return CoordinatorForm.EMBEDDED
