"""The port of a sink: what one kind of store implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, Generic, TypeVar

from sinks.figures import Figures
from subscriber_sdk import Subscriber
from wormhole.config.fields import Addresses, Name, PathFromHere, Settings
from wormhole.host.password_file import read_password_file
from wormhole.model.errors import TargetRefused, UsageError
from wormhole.model.findings import Finding, Report
from wormhole.model.table_definition import TableDefinition

__all__ = ["Guarantee", "Sink", "SinkKind", "SinkSettings"]


class Guarantee(Enum):
    """What a store holds after crashes of every process."""

    EXACTLY_ONCE = "effects exactly once"
    """Each update has had its effect once."""
    CONVERGES = "converges"
    """An update may be repeated, and never replaces the effect of a later one."""
    AT_LEAST_ONCE = "at least once"
    """An update may be repeated. Every repetition has the same id."""


class SinkSettings(Settings):
    """One table ``[sinks.NAME]``, with the keys that every kind has. A kind's own settings are a subclass.

    ``url``: the URL of the store, without a password. ``application``: whose updates the sink receives; ``None``: the
    sink's name. ``password_file``: holds the password for the store, and nothing else. ``dial``: the publishers that
    the sink dials, for an application with ``connect = "publisher"``; empty: publishers dial it.
    """

    url: str
    application: Name | None = None
    password_file: PathFromHere | None = None
    dial: Addresses = ()

    @property
    def verifies(self) -> bool:
        """Whether the sink can compare the rows of its store, for ``wormholectl verify``."""
        return False

    @property
    def shown(self) -> str:
        """The URL for reports and messages, without what only the store should know."""
        return self.url

    def read_password(self) -> str | None:
        """What ``password_file`` holds; ``None`` without one. Blocks. Call it for every new connection: the content may
        have changed.

        Raises :class:`~wormhole.model.errors.TargetRefused`, which shows nothing of the file's content.
        """
        try:
            return None if self.password_file is None else read_password_file(self.password_file)
        except UsageError as error:
            raise TargetRefused(error.message, hint=error.hint, code="login-refused") from error


S = TypeVar("S", bound=SinkSettings)


class Sink(ABC):
    """One sink that is open. Nothing is connected before the first callback of its subscriber, or :meth:`examine`."""

    figures: Figures | None = None
    """What was done with the store; ``None``: the kind does not count it."""

    @property
    @abstractmethod
    def subscriber(self) -> Subscriber:
        """What receives the updates.

        Its callbacks raise :class:`~wormhole.model.errors.TargetUnavailable` while the store cannot be used, which is
        not counted as an attempt, and :class:`~wormhole.model.errors.TargetRefused` for what only an operator can
        change. Any other exception is the fault of an update: it is tried again, and then parked or halted.
        """

    @abstractmethod
    async def examine(self) -> Report:
        """Connect, and report what matters for the sink, in the form of ``wormholectl doctor``. Changes nothing.

        Raises :class:`~wormhole.model.errors.TargetUnavailable` if the store cannot be reached.
        """

    async def compare(self, log: str, tables: Sequence[TableDefinition]) -> list[Finding]:
        """Connect, and report what becomes of these tables of the log ``log``. Changes nothing. Raises as
        :meth:`examine`. A store without tables has nothing to report.
        """
        return []

    async def close(self) -> None:
        """Close connections and files. Called once, after the last callback has returned."""
        return


class SinkKind(ABC, Generic[S]):
    """One kind of store. An instance is the entry point of its package, in the group ``wormhole.sinks``, with the
    scheme of its URLs as the name.

    Its module imports nothing but the standard library, ``wormhole``, ``subscriber_sdk`` and ``sinks.port``. What needs
    a client library is imported in :meth:`open`.

    ``title``: the store's name for people. ``form``: how a URL looks, for messages. ``requirement``: what ``pip``
    installs for it.
    """

    title: ClassVar[str]
    form: ClassVar[str]
    guarantee: ClassVar[Guarantee]
    requirement: ClassVar[str]
    settings: type[S]

    @abstractmethod
    def open(self, name: str, settings: S) -> Sink:
        """The sink of the table ``[sinks.NAME]``. Raises :class:`~wormhole.model.errors.UsageError` for settings that
        do not fit together, and ``ModuleNotFoundError`` without its client library.
        """
