"""The settings of a host's processes: where coordination is, and ``[tls]``, ``[publisher]`` and ``[monitor]``."""

from __future__ import annotations

import socket
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from wormhole.config.fields import (
    Address,
    Advertised,
    HostName,
    Names,
    PathFromHere,
    Paths,
    Seconds,
    Settings,
    Size,
    Texts,
    check_address,
    check_waits,
)
from wormhole.model.units import format_size

__all__ = [
    "CoordinatorConfig",
    "CoordinatorForm",
    "MonitorConfig",
    "PublisherConfig",
    "RestartConfig",
    "TlsAuthority",
    "TlsFiles",
]

MIB: Final = 1 << 20


class TlsFiles(Settings):
    """PEM files for mutual TLS: this process's certificate (chain), its private key, the authority both sides trust,
    and its lists of revoked certificates (``None``: nothing is revoked).
    """

    cert: PathFromHere
    key: PathFromHere
    ca: PathFromHere
    crl: PathFromHere | None = None


class TlsAuthority(Settings):
    """The trusted authority of a process without a certificate: a subscriber that dials with a token."""

    ca: PathFromHere
    crl: PathFromHere | None = None
    cert: ClassVar[None] = None
    key: ClassVar[None] = None


class CoordinatorForm(Enum):
    """How publishers and subscribers find each other."""

    ZOOKEEPER = "zookeeper"
    STATIC = "static"
    EMBEDDED = "embedded"
    """The file names neither of the other forms. Its reader embeds a ZooKeeper on loopback, or demands another
    form.
    """


class CoordinatorConfig(Settings):
    """``[coordinator]``.

    ``zookeeper``: ``host:port,host:port/root``. ``static``: this file has the addresses. ``tls`` is for the connection
    to ZooKeeper; ``auth_file`` holds ``user:password`` for ZooKeeper's digest scheme. ``same_user``: these credentials
    are sent only to a server on this machine whose process belongs to the owner of ``auth_file``, or to root.
    """

    zookeeper: str = ""
    static: bool = False
    # An owner that lost contact stops after 2/3 of this time, and its flows wait that long. Ten seconds outlast the
    # election of a leader.
    session_timeout: Seconds = 10.0
    # How long `start` waits for the first contact before it fails.
    connect_timeout: Seconds = 15.0
    tls: TlsFiles | None = None
    auth_file: PathFromHere | None = None
    same_user: bool = False
    # For the embedded server. Without it the installed jars are used.
    zookeeper_jars: PathFromHere | None = None

    @field_validator("zookeeper")
    @classmethod
    def _hosts(cls, value: str) -> str:
        hosts, _, root = value.partition("/")
        if value and (not all(_is_host(host.strip()) for host in hosts.split(",")) or "//" in f"/{root}"):
            raise ValueError('must be "host:port,host:port/root", for example "zk1:2181,zk2:2181/wormhole"')
        return value.rstrip("/")

    def _servers(self) -> list[str]:
        return self.zookeeper.partition("/")[0].split(",")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.tls is not None and self.tls.crl is not None:
            raise ValueError(
                "tls.crl is for Wormhole's own links, under [tls]: the ZooKeeper client reads no revocation list"
            )
        if self.static and self.zookeeper:
            raise ValueError("static = true and zookeeper exclude each other: keep one")
        if self.same_user and self.auth_file is None:
            raise ValueError("same_user = true needs auth_file: its owner is the user that is meant")
        if self.same_user and not all(host.strip().startswith("127.0.0.1:") for host in self._servers()):
            raise ValueError("same_user = true needs a server at 127.0.0.1: the user of another one cannot be seen")
        return self


def _is_host(text: str) -> bool:
    try:
        return bool(check_address(text)) and not text.endswith(":0")
    except ValueError:
        return False


class PublisherConfig(Settings):
    """``[publisher]``: the bounds and places of every publisher that this file describes.

    Sizes in bytes, times in seconds.
    """

    # Limit of the process's memory. Everything below is part of it.
    memory_budget: Size = 256 * MIB
    # Size of the cache of the last encoded updates. A flow that is slightly behind reads it and needs no reader.
    change_buffer: Size = 64 * MIB
    # A larger update is delivered without values, marked `too_large`.
    max_update_bytes: Size = 64 * MIB
    # The largest gRPC message. A larger update is sent in parts. It is well above a batch (512 KiB) and below gRPC's
    # own default of 4 MiB.
    max_frame: Size = 1 * MIB
    # `local` needs no service, but belongs to one host; `zookeeper` lets another host take over.
    markers: Literal["local", "zookeeper", "memory"] = "local"
    state_dir: PathFromHere = Path("/var/lib/wormhole")
    admin_listen: Address = "127.0.0.1:0"
    # The publisher's own /metrics, /healthz and /readyz.
    http_listen: Address = "127.0.0.1:0"
    # Where subscribers of applications with `connect = "publisher"` dial.
    attach_listen: Address = "127.0.0.1:0"
    # Where subscribers with a token and no certificate dial, with TLS. If it is not set, none is admitted by its token.
    token_listen: Address | None = None
    # The host in both addresses that ZooKeeper publishes. It may have the port of the first, if subscribers dial
    # another port than the publisher listens at. The default is the address at which the publisher listens.
    attach_advertise: Advertised = ""
    # Names (CN or a DNS name) of certificates that permit changes. Subscribers hold certificates of the same authority,
    # so a trusted certificate alone is not enough.
    admins: Texts = ()
    # Descriptor sets of value formats that may be opened when a dataset in ZooKeeper names them. Those of the datasets
    # in this file may be opened too.
    descriptor_sets: Paths | None = None
    # The secret with which masks hash values. Only the host names its file, because a process that can write to
    # ZooKeeper must not choose it.
    mask_key_file: PathFromHere | None = None
    # Limit of the parked updates of one flow. At the limit the flow halts, because a store
    # without a limit would fill the disk.
    dead_letters: int = Field(default=1000, ge=1, le=1_000_000)
    # How long a vanished subscriber may stay away before its shards move.
    grace_period: Seconds = 5.0
    # How long a handler may run. The publisher waits that long for a subscriber that has to release a flow.
    handler_timeout: Seconds = 60.0
    # Each side sends a message at least this often. The stream ends when three are missing.
    heartbeat: Seconds = 3.0
    # How long a graceful stop waits until subscribers have finished the updates that they hold.
    stop_timeout: Seconds = 20.0

    @model_validator(mode="after")
    def _possible(self) -> Self:
        problems = []
        if self.change_buffer + self.max_update_bytes > self.memory_budget:
            problems.append(
                f"change_buffer ({format_size(self.change_buffer)}) and max_update_bytes "
                f"({format_size(self.max_update_bytes)}) "
                f"together must fit memory_budget ({format_size(self.memory_budget)})"
            )
        if not 64 << 10 <= self.max_frame <= 64 * MIB:
            problems.append(f"max_frame is {format_size(self.max_frame)}; allowed is 64KiB to 64MiB")
        if self.memory_budget < 64 * MIB:
            problems.append(f"memory_budget is {format_size(self.memory_budget)}; a publisher needs at least 64MiB")
        if problems:
            raise ValueError("; ".join(problems))
        return self


class RestartConfig(Settings):
    """How a publisher that ended by itself is restarted: after ``first_wait``, then longer, up to ``longest_wait``
    (seconds).

    ``crashes`` ends within ``within`` seconds are a crash loop: nothing is started until the configuration changes.
    """

    first_wait: Seconds = 0.5
    longest_wait: Seconds = 30.0
    crashes: int = Field(default=5, ge=1, le=1000)
    within: Seconds = 60.0

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_waits(self.first_wait, self.longest_wait)
        return self


class MonitorConfig(Settings):
    """``[monitor]``: the process that runs this host's publishers.

    ``state_dir``: see :attr:`Config.monitor_state_dir`. ``sinks``: the names of the sinks of this file that it runs
    too.
    """

    # The name in `host` of the logs; empty: the machine's own name.
    host: HostName = ""
    state_dir: PathFromHere | None = None
    # Status page, /metrics, /healthz and /readyz; port 0 takes a free one.
    listen: Address = "127.0.0.1:7480"
    # How long a publisher may take to end. It is longer than the publisher's stop_timeout, during which it waits for
    # subscribers.
    stop_timeout: Seconds = 30.0
    restart: RestartConfig = RestartConfig.model_construct()
    sinks: Names = ()

    @property
    def host_name(self) -> str:
        """The name of this monitor's host."""
        return self.host or socket.gethostname()
