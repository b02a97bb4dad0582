"""The port of a sink: the interface that each kind of store implements."""

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
    """What a store contains after processes crashed."""

    EXACTLY_ONCE = "effects exactly once"
    """Each update has had its effect once."""
    CONVERGES = "converges"
    """An update may be applied again, but never replaces the effect of a later update."""
    AT_LEAST_ONCE = "at least once"
    """An update may be stored again. Every repetition has the same id."""


class SinkSettings(Settings):
    """One table ``[sinks.NAME]``, with the keys that every kind has. A kind's own settings are a subclass.

    ``url``: the URL of the store, without a password. ``application``: the application whose updates the sink receives;
    ``None``: the application with the sink's name. ``password_file``: a file with only the store's password. ``dial``:
    the publishers that the sink dials, for an application with ``connect = "publisher"``; empty: publishers dial the
    sink.
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
        """The URL for reports and messages, without secret parts."""
        return self.url

    def read_password(self) -> str | None:
        """The content of ``password_file``; ``None`` without a file. Blocks. Call this for every new connection: the
        content may have changed.

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
    """The counters of this sink; ``None``: the kind does not count."""

    @property
    @abstractmethod
    def subscriber(self) -> Subscriber:
        """The subscriber that receives the updates and writes them to the store.

        Its callbacks raise :class:`~wormhole.model.errors.TargetUnavailable` while the store cannot be used, which does
        not count as an attempt, and :class:`~wormhole.model.errors.TargetRefused` if an operator has to act. For any
        other exception the update is tried again. After the last attempt the update is parked, or its flow halts.
        """

    @abstractmethod
    async def examine(self) -> Report:
        """Connect, and report what matters for the sink, in the form of ``wormholectl doctor``. Changes nothing.

        Raises :class:`~wormhole.model.errors.TargetUnavailable` if the store cannot be reached.
        """

    async def compare(self, log: str, tables: Sequence[TableDefinition]) -> list[Finding]:
        """Connect, and report how the store can hold these tables of the log ``log``. Changes nothing. Raises as
        :meth:`examine`. A store without tables has nothing to report.
        """
        return []

    async def close(self) -> None:
        """Close connections and files. Called once, after the last callback has returned."""
        return


class SinkKind(ABC, Generic[S]):
    """One kind of store. An instance is the entry point of its package, in the group ``wormhole.sinks``, with the
    scheme of its URLs as the name.

    Its module imports nothing but the standard library, ``wormhole``, ``subscriber_sdk`` and ``sinks.port``.
    :meth:`open` imports modules that need a client library.

    ``title``: the store's name for people. ``form``: the form of a URL, for messages. ``requirement``: the requirement
    for ``pip`` that installs the client library.
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
