"""The port to a kind of datastore: everything that the product asks about one before and beside tailing its log.

A package offers an instance as an entry point of the group ``wormhole.sources``, whose name is the scheme of the
datastore's URLs. The module of the instance is imported wherever a URL is checked, so what tails the log is imported in
the methods that need it.
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
    """Where a password may come from: a file, the files of the user who runs a command, the answer to ``prompt``."""

    password_file: Path | None = None
    user_files: bool = False
    prompt: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a source is opened with.

    ``log``: the log's name, which the shards' names begin with. ``state_dir``: a folder of this log's own.
    ``max_update_bytes``: larger updates come without their values. ``disk_budget``: bytes of log that the source may
    keep in ``state_dir`` from deletion. ``server_ids``: replication ids of the readers (``first-last``, empty: made
    from the log's name). ``skip_tables``: ``database.table`` of which nothing is delivered. ``history_tables``:
    system-versioned tables whose history is delivered too. ``rows_dir``: an empty folder for one of several readers of
    existing rows that work at a time; ``None``: there is one, which has its files in ``state_dir``. ``transient``: a
    command looks at the log for a while; the datastore keeps nothing for it afterwards. ``binlog_folder``: closed files
    of the log that the server may have deleted. ``state``: where the source keeps what it knows of the servers behind
    the log, for every publisher that may own the log, of which one does at a time; ``None``: in ``state_dir``, for this
    one. ``may_act``: whether this process still owns the log; without ``state`` it always does.
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
    """What a datastore can do for a log. ``server``: which one it is, the same text whichever host asks; of a group
    whose members share their identity, the group's; empty: the datastore gives none. ``ready``: its log can be
    served; ``problem``: why not. ``lacking``: what was delivered of the log and is not in this datastore, for people;
    empty: nothing, as far as can be seen. ``promotable``: it is not ready for the one reason that it is a standby,
    which an operator promotes once its primary is gone.
    """

    server: str
    ready: bool = True
    lacking: str = ""
    problem: Problem = NO_PROBLEM
    promotable: bool = False


@dataclass(frozen=True, slots=True)
class ServerObjects:
    """What a publisher needs to have been made in the datastore. ``missing``: the statements that make what is not
    there, in order; ``present``: those that drop what is. ``publisher``: which one works with it now, ``in_use``: who
    does, a command too; each empty for nobody. ``kept``: what is lost with it, empty for nothing. ``others``: the
    parameters of a URL that name what else is there, of other logs. ``left_out``: tables whose changes do not reach the
    log's readers, each with the reason, in words; empty for none.
    """

    missing: tuple[str, ...]
    present: tuple[str, ...]
    publisher: str = ""
    in_use: str = ""
    kept: str = ""
    others: tuple[str, ...] = ()
    left_out: str = ""


def number_is_behind(number: int, marker: Datamarker) -> bool:
    """For a log that numbers its transactions and whose logical position is the last number."""
    return marker.delivered.isdecimal() and number <= int(marker.delivered)


class Datastore(ABC):
    """One kind of datastore. ``requirement``: the argument of ``pip install`` that makes it work.

    ``refuses``: the settings of a log that mean nothing here (``password_file``, ``pin_folder``, ``binlog_folder``,
    ``server_ids``, ``skip_tables``, ``history_tables``), each with the reason. ``table_words``: what one table and
    several are called. ``user_files``: the file in a user's home that may hold a password; empty for none.
    ``holds_log``: it keeps log until its source releases it, on a disk of its own. ``one_host``: why a log of it can be
    read on one host only; empty: it can be read on any. ``on_a_disk``: it is files, and what its source knows of them
    is in ``pin_folder``: a log can be read on any host that has the disk with both, and no other copy can go on with
    it.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()
    requirement: ClassVar[str]
    refuses: ClassVar[Mapping[str, str]] = {}
    table_words: ClassVar[tuple[str, str]] = ("table", "tables")
    user_files: ClassVar[str] = ""
    holds_log: ClassVar[bool] = False
    one_host: ClassVar[str] = ""
    on_a_disk: ClassVar[bool] = False

    @abstractmethod
    def form(self, scheme: str) -> str:
        """What a URL looks like, for messages."""

    @abstractmethod
    def check_url(self, url: str, *, configured: bool = False) -> None:
        """Raises ``ValueError`` with what the URL must be and without a password. Uses neither files nor the network.

        ``configured``: it is part of a configuration, to which no file of a user adds anything.
        """

    @abstractmethod
    def open(self, url: str, options: SourceOptions) -> LogSource:
        """The source; nothing is touched before its ``start``. Raises :class:`~wormhole.model.errors.UsageError`."""

    @abstractmethod
    def examine(self, url: str, state_dir: Path, login: Login) -> Report:
        """What matters for tailing it, with ``state_dir`` as the publisher's folder. Only reads.

        ``init`` uses its tables and shows the fact named ``server``.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` or :class:`~wormhole.model.errors.UsageError`.
        """

    def examine_existing_rows(self, url: str, login: Login, tables: Sequence[str]) -> Sequence[Finding]:
        """Whether the existing rows of ``tables`` may be read: patterns as in an application's ``tables``. Only reads;
        nothing is found where nothing hides a table, which is the default. Raises as :meth:`examine`.
        """
        return ()

    def examine_binlog_folder(self, url: str, login: Login, folder: Path) -> Sequence[Finding]:
        """What a folder with closed files of the log holds, and whether that adjoins the log. Only reads; asked where
        ``binlog_folder`` is not refused. Raises as :meth:`examine`.
        """
        return ()

    def standing(self, url: str, login: Login, delivered: Collection[str], *, failover: bool) -> Standing:
        """Whether the log can be served from this datastore now. Only reads, over a connection of its own, within the
        time that one question may take; nothing of the log's state is written.

        ``url``: with the names that it may leave out, as :meth:`url_of_log` gives it. ``delivered``: the logical
        positions of the flows. ``failover``: the log may have been served from another copy before. Here: it can be,
        and which datastore it is stays unknown.

        Raises as :meth:`examine` when the datastore cannot be asked.
        """
        return Standing("")

    def describe(self, url: str, login: Login, wanted: Callable[[str], bool]) -> Sequence[TableDefinition]:
        """The tables that the account may see and whose names are ``wanted``, as they are now; ``wormholectl models``
        makes classes of them. Only reads.

        Raises :class:`~wormhole.model.errors.UsageError` where the datastore knows nothing of what its values hold,
        which is the default, and as :meth:`examine`.
        """
        raise UsageError(
            f"{self.capabilities.title} does not describe what its values hold: no model can be made from it",
            hint="write the class yourself (docs/models.md)",
        )

    def open_tables(self, url: str, options: SourceOptions) -> TableSource:
        """The existing rows of the log that :meth:`open` would tail with the same arguments, for backfills. Nothing is
        touched before the first call.

        Raises :class:`~wormhole.model.errors.UsageError` where the datastore has none that can be read in chunks, which
        is the default.
        """
        raise UsageError(
            f"existing rows of {self.capabilities.title} cannot be read: its source has no TableSource",
            hint='use `start = "latest"`, or add open_tables to its datastore (docs/write-a-source.md)',
        )

    def is_place(self, text: str) -> bool:
        """Whether ``text`` is written as a logical position of such a log; ``latest``, ``earliest`` and ``1/42/32768``
        always are.
        """
        return False

    def native_place(self, place: LogPosition, base: str) -> str:
        """``place`` as the datastore's own tools write it; empty: they write it as we do, or ``base`` is missing.

        ``base``: what the datastore calls the files of the log, as its source reports it.
        """
        return ""

    def is_behind(self, source: str, number: int, marker: Datamarker) -> bool:
        """Whether the transaction ``number`` of ``source``, as update ids name it, ends at or before the marker.

        Here: as :func:`number_is_behind`.
        """
        return number_is_behind(number, marker)

    def local_path(self, url: str) -> Path | None:
        """The path of a datastore of files: links to its files cost nothing on the same file system. ``None``: it has
        none.
        """
        return None

    # -- what a publisher needs to have been made in the datastore

    def url_of_log(self, url: str, log: str, configured: str = "") -> str:
        """The URL with the names that it leaves out: as ``configured``, the URL in a configuration, has them, else as a
        publisher of the log named ``log`` makes them up.
        """
        return url

    def reserved(self, url: str, log: str) -> str:
        """What a publisher of the log named ``log`` has in the datastore for itself alone, in words: of two logs with
        the same words only one can be served. Empty, the default: nothing.
        """
        return ""

    def server_objects(self, url: str, login: Login, tables: Sequence[str] = ()) -> ServerObjects | None:
        """What there is of that, and what is missing; ``None``, the default: nothing is needed. Only reads.
        ``tables``: patterns of the tables that are wanted, where they have to be named in the datastore; none: those
        that are there, or else all.

        Raises as :meth:`examine`.
        """
        return None

    def run_statements(self, url: str, login: Login, statements: Sequence[str]) -> None:
        """Run statements of :meth:`server_objects`: the operator said yes. Raises as :meth:`examine`."""
        raise UsageError(f"nothing is made in {self.capabilities.title}", hint="run its publisher")

    # -- what `wormholectl init` asks

    def name_in(self, url: str) -> str:
        """What a dataset and its log may be called after, of the URL alone; empty: after what is found there."""
        return ""

    def split_database(self, url: str) -> tuple[str, str]:
        """The URL of the log, and the database that ``url`` names after it; empty for none."""
        return url, ""

    def configured_url(self, url: str, login: Login) -> str:
        """The URL as a configuration may hold it: with what the user's files add to it, without a password."""
        return url

    def url_comments(self, url: str) -> Sequence[str]:
        """Lines that ``init`` writes above the URL, each without its ``#``."""
        return ()
