"""The port (interface) of a kind of datastore: everything that the product needs except tailing its log.

A package offers an instance as an entry point of the group ``wormhole.sources``, whose name is the scheme of the
datastore's URLs. The instance's module is imported wherever a URL is checked. Therefore a method that tails the log
imports the modules for that when it is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import UsageError
from wormhole.model.findings import Finding, Report
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.sharding import Sharding
from wormhole.model.table_definition import TableDefinition
from wormhole.ports.log_source import LogSource
from wormhole.ports.source_state import SourceState
from wormhole.ports.table_source import TableSource

__all__ = ["Datastore", "Login", "ServerObjects", "SourceOptions", "Standing", "number_is_behind"]


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Login:
    """The permitted origins of a password: a file, the files of the user who runs a command, or the answer to
    ``prompt``.
    """

    password_file: Path | None = None
    user_files: bool = False
    prompt: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The settings with which a source is opened.

    ``log``: the log's name, with which the shards' names begin. ``state_dir``: a folder of this log's own.
    ``max_update_bytes``: larger updates come without their values. ``disk_budget``: bytes of log that the source may
    keep in ``state_dir`` from deletion. ``server_ids``: replication ids of the readers (``first-last``; empty: made
    from the log's name). ``skip_tables``: tables, as ``database.table``, that are not delivered. ``history_tables``:
    system-versioned tables whose history is delivered too. ``binlog_folder``: closed files of the log that the server
    may have deleted.

    ``rows_dir``: an empty folder for this reader of existing rows, if several work at a time; ``None``: it is the only
    one, and has its files in ``state_dir``. ``transient``: a command reads the log for a while; the datastore keeps
    nothing for it afterwards.

    ``state``: where the source keeps its knowledge of the servers behind the log. All publishers that may own the log
    share it, and one of them owns the log at a time. ``None``: the source keeps it in ``state_dir``, for this publisher
    alone. ``may_act``: whether this process still owns the log; without ``state`` it always does.
    """

    log: str
    state_dir: Path
    sharding: Sharding
    max_update_bytes: int
    disk_budget: int
    login: Login = Login()
    server_ids: str = ""
    skip_tables: frozenset[str] = frozenset()
    history_tables: frozenset[str] = frozenset()
    rows_dir: Path | None = None
    transient: bool = False
    binlog_folder: Path | None = None
    state: SourceState | None = None
    may_act: Callable[[], bool] = _always


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a datastore can serve a log.

    ``server``: the identity of the server, or of the group if its members share one, the same text on every host;
    empty: the datastore has none. ``ready``: its log can be served; ``problem``: why not. ``lacking``: the delivered
    transactions that this datastore lacks, as text for people; empty: none are known. ``promotable``: the only reason
    against ``ready`` is that it is a standby, which an operator promotes after the loss of its primary.
    """

    server: str
    ready: bool = True
    lacking: str = ""
    problem: Problem = NO_PROBLEM
    promotable: bool = False


@dataclass(frozen=True, slots=True)
class ServerObjects:
    """The objects in the datastore that a publisher needs.

    ``missing``: the statements that create the missing objects, in order. ``present``: the statements that drop the
    present ones. ``publisher``: the publisher that uses them now; ``in_use``: the publisher or command that uses them;
    each empty if nothing does. ``kept``: what is lost if they are dropped; empty: nothing. ``others``: the parameters
    of a URL that name the objects of other logs. ``left_out``: tables whose changes do not reach the log's readers,
    each with the reason, in words; empty: none. ``tables``: each table with its state, in words, if triggers make the
    log.
    """

    missing: tuple[str, ...]
    present: tuple[str, ...]
    publisher: str = ""
    in_use: str = ""
    kept: str = ""
    others: tuple[str, ...] = ()
    left_out: str = ""
    tables: tuple[tuple[str, str], ...] = ()


def number_is_behind(number: int, marker: Datamarker) -> bool:
    """Whether ``number`` is at or before the marker, in a log that numbers its transactions and whose logical position
    is the last number.
    """
    return marker.delivered.isdecimal() and number <= int(marker.delivered)


class Datastore(ABC):
    """One kind of datastore.

    ``requirement``: the argument of ``pip install`` that makes it work. ``refuses``: the settings of a log that have no
    meaning here (``password_file``, ``pin_folder``, ``binlog_folder``, ``server_ids``, ``skip_tables``,
    ``history_tables``), each with the reason. ``table_words``: the words for one table and for several. ``user_files``:
    the file in a user's home that may hold a password; empty: none.

    ``holds_log``: the datastore keeps log on its own disk until the source releases it. ``one_host``: why its log can
    be read on one host only; empty: it can be read on any. ``on_a_disk``: the datastore consists of files, and its
    source keeps its state in ``pin_folder``. Any host that has the disk with both can read the log. No other copy can
    continue it. ``captures``: triggers write the log. They are among the :meth:`server_objects`, and only ``wormholectl
    capture install`` makes them.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()
    requirement: ClassVar[str]
    refuses: ClassVar[Mapping[str, str]] = {}
    table_words: ClassVar[tuple[str, str]] = ("table", "tables")
    user_files: ClassVar[str] = ""
    holds_log: ClassVar[bool] = False
    one_host: ClassVar[str] = ""
    on_a_disk: ClassVar[bool] = False
    captures: ClassVar[bool] = False

    @abstractmethod
    def form(self, scheme: str) -> str:
        """The form of a URL, for messages."""

    @abstractmethod
    def check_url(self, url: str, *, configured: bool = False) -> None:
        """Raises ``ValueError``, with the required form and without a password, if the URL is wrong. Uses no files and
        no network.

        ``configured``: the URL is part of a configuration, to which a user's files add nothing.
        """

    @abstractmethod
    def open(self, url: str, options: SourceOptions) -> LogSource:
        """The source. It accesses nothing before its ``start``. Raises :class:`~wormhole.model.errors.UsageError`."""

    @abstractmethod
    def examine(self, url: str, state_dir: Path, login: Login) -> Report:
        """Findings on everything that matters for tailing the log. Only reads. ``state_dir``: the publisher's folder.

        ``init`` uses the report's tables and shows the fact named ``server``.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` or :class:`~wormhole.model.errors.UsageError`.
        """

    def examine_existing_rows(self, url: str, login: Login, tables: Sequence[str]) -> Sequence[Finding]:
        """Findings on whether the account may read the existing rows of ``tables``. Only reads. ``tables``: patterns as
        in an application's ``tables``.

        The default, for a datastore that hides no table, finds nothing. Raises as :meth:`examine`.
        """
        return ()

    def examine_binlog_folder(self, url: str, login: Login, folder: Path) -> Sequence[Finding]:
        """Findings on a folder with closed files of the log: its content, and whether the log continues it without a
        gap. Only reads. Called only where ``binlog_folder`` is not refused. Raises as :meth:`examine`.
        """
        return ()

    def standing(self, url: str, login: Login, delivered: Collection[str], *, failover: bool) -> Standing:
        """Whether the log can be served from this datastore now.

        Only reads, over a connection of its own, within the time limit of one request to the datastore. Leaves the
        log's stored state as it is.

        ``url``: with the names that it may leave out, as :meth:`url_of_log` returns it. ``delivered``: the logical
        positions of the flows. ``failover``: the log may have been served from another copy before. The default: the
        log can be served, and the identity is unknown.

        Raises as :meth:`examine` when the datastore cannot be reached.
        """
        return Standing("")

    def describe(self, url: str, login: Login, wanted: Callable[[str], bool]) -> Sequence[TableDefinition]:
        """The tables that the account may see and whose names are ``wanted``, as they are now. ``wormholectl models``
        makes classes of them. Only reads.

        Raises :class:`~wormhole.model.errors.UsageError` if the datastore does not describe its values, which is the
        default, and as :meth:`examine`.
        """
        raise UsageError(
            f"{self.capabilities.title} does not describe what its values hold: no model can be made from it",
            hint="write the class yourself (docs/models.md)",
        )

    def open_tables(self, url: str, options: SourceOptions) -> TableSource:
        """The existing rows of the log that :meth:`open` would tail with the same arguments, for backfills. It accesses
        nothing before the first call.

        Raises :class:`~wormhole.model.errors.UsageError` if the datastore has no rows that can be read in chunks, which
        is the default.
        """
        raise UsageError(
            f"existing rows of {self.capabilities.title} cannot be read: its source has no TableSource",
            hint='use `start = "latest"`, or add open_tables to its datastore (docs/write-a-source.md)',
        )

    def is_place(self, text: str) -> bool:
        """Whether ``text`` has the form of a logical position of a log of this kind. ``latest``, ``earliest`` and
        places such as ``1/42/32768`` are handled elsewhere: they are valid for every log.
        """
        return False

    def native_place(self, place: LogPosition, base: str) -> str:
        """``place`` as the datastore's own tools write it; empty: they use the same form, or ``base`` is missing.

        ``base``: the datastore's name for the files of the log, as its source reports it.
        """
        return ""

    def is_behind(self, source: str, number: int, marker: Datamarker) -> bool:
        """Whether the transaction ``number`` of ``source``, as update ids name it, ends at or before the marker.

        The default is :func:`number_is_behind`.
        """
        return number_is_behind(number, marker)

    def local_path(self, url: str) -> Path | None:
        """The path of a datastore that consists of files; ``None`` for others. Hard links to its files take no space on
        the same file system.
        """
        return None

    # -- objects that a publisher needs in the datastore

    def url_of_log(self, url: str, log: str, configured: str = "") -> str:
        """The URL with the names that it leaves out filled in.

        The names come from ``configured``, the URL in a configuration. A name that is missing there too becomes the one
        that a publisher of the log named ``log`` uses by default.
        """
        return url

    def reserved(self, url: str, log: str) -> str:
        """The objects in the datastore that only the publisher of the log named ``log`` may use, in words. Two logs
        with the same words cannot both be served. Empty, the default: there are none.
        """
        return ""

    def server_objects(self, url: str, login: Login, tables: Sequence[str] = ()) -> ServerObjects | None:
        """The objects that are present and those that are missing; ``None``, the default: none are needed. Only reads.

        ``tables``: patterns of the wanted tables, for a datastore where tables have to be named; empty: the tables that
        the present objects name, or else all.

        Raises as :meth:`examine`.
        """
        return None

    def run_statements(self, url: str, login: Login, statements: Sequence[str]) -> None:
        """Run statements of :meth:`server_objects`, after the operator agreed. Raises as :meth:`examine`."""
        raise UsageError(f"nothing is made in {self.capabilities.title}", hint="run its publisher")

    # -- questions of `wormholectl init`

    def name_in(self, url: str) -> str:
        """A name for a dataset and its log, from the URL alone; empty: the datastore's content gives the name."""
        return ""

    def split_database(self, url: str) -> tuple[str, str]:
        """The URL of the log, and the database that ``url`` names beside it; empty: none."""
        return url, ""

    def configured_url(self, url: str, login: Login) -> str:
        """The URL as a configuration may hold it: with the additions from the user's files, without a password."""
        return url

    def url_comments(self, url: str) -> Sequence[str]:
        """Lines that ``init`` writes above the URL, each without its ``#``."""
        return ()
