"""Every error of the project, in one tree.

The class shows who has to act. Its code names the entry of ``wormholectl explain CODE`` and of docs/runbook.md, unless
the error carries a narrower one::

    WormholeError                     failed                   the base of all
    ├── Retryable                     try-again                passes by itself: try again with backoff
    │   ├── SourceUnavailable         source-unavailable       the datastore's log cannot be reached just now
    │   │   ├── ChunkUnavailable      chunk-unavailable        the datastore ended a read of rows before it was complete
    │   │   └── SourceSilent          source-silent            the datastore was reached, and sends nothing
    │   ├── CoordinationLost          coordination-lost        no contact with ZooKeeper
    │   ├── ArchiveUnavailable        archive-unavailable      the archive cannot be reached or written just now
    │   ├── ArchiveConflict           archive-conflict         another writer of the archive committed first
    │   ├── TransactionRolledBack     transaction-rolled-back  the database rolled back a transaction delivered in part
    │   ├── TargetUnavailable         target-unavailable       the application's own database fails just now
    │   └── StreamBroken              stream-broken            the connection to a subscriber ended
    ├── Fatal                         needs-operator           an operator has to act before this part continues
    │   ├── DecodeError               log-undecodable          the log holds bytes that cannot be decoded
    │   ├── PositionPurged            marker-purged            the log no longer reaches back to the place
    │   ├── Diverged                  log-diverged             the log is not the one that the marker came from
    │   ├── UnsupportedLog            log-unsupported          a log of a kind that cannot be tailed correctly
    │   ├── UnreadableTable           table-unreadable         the existing rows of one table cannot be read
    │   ├── MarkerStoreError          marker-store-failed      a datamarker could not be stored or read
    │   ├── EpochRefused              owner-elsewhere          a newer owner holds the flow
    │   ├── ArchiveError              archive-damaged          the archive is damaged, has a hole, or is newer
    │   ├── ReplayError               replay-stopped           a mass replay cannot continue
    │   ├── ProtocolError             protocol-broken          the other side broke the wire protocol
    │   ├── ModelMismatch             model-mismatch           a row does not fit the application's model
    │   ├── TargetRefused             target-refused           what the application stored does not fit its flow
    │   └── HandlerFailed             handler-failed           the application's callback exhausted its retries
    └── UsageError                    wrong-request            the request is wrong: correct it
        ├── ConfigError               config-invalid           configuration: file, field, value, what is allowed
        ├── FilterError               filter-invalid           a filter does not parse or cannot be decided
        ├── PositionError             position-invalid         the text is no position of this log
        └── UnknownApplication        application-unknown      no such application is configured

A test compares this drawing with the classes.
"""

from __future__ import annotations

import re

from wormhole.model.problem import Problem

__all__ = [
    "ArchiveConflict",
    "ArchiveError",
    "ArchiveUnavailable",
    "ChunkUnavailable",
    "ConfigError",
    "CoordinationLost",
    "DecodeError",
    "Diverged",
    "EpochRefused",
    "Fatal",
    "FilterError",
    "HandlerFailed",
    "MarkerStoreError",
    "ModelMismatch",
    "PositionError",
    "PositionPurged",
    "ProtocolError",
    "ReplayError",
    "Retryable",
    "SourceSilent",
    "SourceUnavailable",
    "StreamBroken",
    "TargetRefused",
    "TargetUnavailable",
    "TransactionRolledBack",
    "UnknownApplication",
    "UnreadableTable",
    "UnsupportedLog",
    "UsageError",
    "WormholeError",
]


class WormholeError(Exception):
    """What broke, where, and the next step.

    ``position`` is the text of a place in a log; ``hint`` is what the operator can do, in one sentence. ``code`` is the
    stable name of the problems with this remedy (:mod:`wormhole.problems`): the class's own unless a narrower one is
    given. All but ``message`` are optional. A layer that knows the place may fill it in later (``at``).
    """

    code: str = "failed"

    def __init__(
        self,
        message: str,
        *,
        shard: str | None = None,
        flow: str | None = None,
        position: str | None = None,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.shard = shard
        self.flow = flow
        self.position = position
        self.hint = hint
        if code:
            self.code = code

    def at(self, *, shard: str | None = None, flow: str | None = None, position: str | None = None) -> WormholeError:
        """Add the parts of the place that the raising layer did not know. Known parts stay. Returns ``self``."""
        self.shard = self.shard or shard
        self.flow = self.flow or flow
        self.position = self.position or position
        return self

    @property
    def text(self) -> str:
        """The error's text and its place, without the next step."""
        position = None if self.position and _names(self.message, self.position) else self.position
        where = [
            f"{name} {value}"
            for name, value in (("flow", self.flow), ("shard", self.shard), ("position", position))
            if value is not None
        ]
        return self.message if not where else f"{self.message} ({', '.join(where)})"

    @property
    def problem(self) -> Problem:
        """The error as a problem, with the next step and the code as separate fields."""
        return Problem(self.text, self.hint or "", self.code)

    def __str__(self) -> str:
        return str(self.problem)


def _names(message: str, place: str) -> bool:
    """Whether the message contains the place as a whole."""
    return re.search(rf"(?<![\w/:.-]){re.escape(place)}(?![\w/:-])", message) is not None


class Retryable(WormholeError):
    """The cause passes without an operator: the caller tries again with backoff."""

    code: str = "try-again"


class SourceUnavailable(Retryable):
    """The datastore's log cannot be reached just now."""

    code: str = "source-unavailable"


class ChunkUnavailable(SourceUnavailable):
    """The datastore ended the reading of some rows before it was complete: a smaller chunk may succeed."""

    code: str = "chunk-unavailable"


class SourceSilent(SourceUnavailable):
    """The datastore was reached and sends nothing: it may be stopped, or the network may stall. It may continue at any
    moment.
    """

    code: str = "source-silent"


class CoordinationLost(Retryable):
    """No contact with ZooKeeper: everything that needs agreement has to wait."""

    code: str = "coordination-lost"


class ArchiveUnavailable(Retryable):
    """The archive cannot be reached or written at the moment: the network, its service, a full disk. What was committed
    stays.
    """

    code: str = "archive-unavailable"


class ArchiveConflict(Retryable):
    """Another writer of the archive committed first: the decision has to be repeated from the newest manifest."""

    code: str = "archive-conflict"


class TransactionRolledBack(Retryable):
    """The database rolled back a transaction that was delivered in part.

    The application has to undo what it did with that part.
    """

    code: str = "transaction-rolled-back"


class TargetUnavailable(Retryable):
    """The application's own database fails just now, or it is not known what it stored.

    Raised by a callback: the shard is assigned again, and begins at the datamarker that the application returns then.
    However often that happens, it neither halts the flow nor parks an update.
    """

    code: str = "target-unavailable"


class StreamBroken(Retryable):
    """The connection to a subscriber ended before it was closed."""

    code: str = "stream-broken"


class Fatal(WormholeError):
    """An operator has to act before this part continues."""

    code: str = "needs-operator"


class DecodeError(Fatal):
    """The log holds bytes that are not a valid record. The message names record, field and position.

    ``tables``: the affected tables, as ``database.table``; empty: possibly all. ``update_id``: the id of the update
    that cannot be decoded, for ``wormholectl flows skip``; empty if there is none.
    """

    code: str = "log-undecodable"

    def __init__(self, message: str, *, tables: tuple[str, ...] = (), update_id: str = "", **where: str | None) -> None:
        super().__init__(message, **where)
        self.tables = tables
        self.update_id = update_id


class PositionPurged(Fatal):
    """The log no longer reaches back to the place.

    ``first_missing`` and ``last_missing`` are logical positions (inclusive, empty when unknown).
    """

    code: str = "marker-purged"

    def __init__(self, message: str, *, first_missing: str = "", last_missing: str = "", **where: str | None) -> None:
        super().__init__(message, **where)
        self.first_missing = first_missing
        self.last_missing = last_missing


class Diverged(Fatal):
    """The log is not the one that the marker came from (restored, reset, or failed over to a lagging copy).

    ``first_missing`` and ``last_missing``: logical positions, inclusive, empty when unknown. The updates between them
    were delivered, or may have been, and are no longer in the log. For a database that consists of files, the range is
    that of the marker's own history after the marker.

    ``resume``: a place (see :meth:`wormhole.ports.log_source.LogSource.locate`) from which the log continues as if the
    missing range had never been delivered; empty: the beginning of the log.
    """

    code: str = "log-diverged"

    def __init__(
        self, message: str, *, first_missing: str = "", last_missing: str = "", resume: str = "", **where: str | None
    ) -> None:
        super().__init__(message, **where)
        self.first_missing = first_missing
        self.last_missing = last_missing
        self.resume = resume


class UnreadableTable(Fatal):
    """The existing rows of one table cannot be read: no key, no privilege, dropped. Other tables are not affected."""

    code: str = "table-unreadable"


class UnsupportedLog(Fatal):
    """The log is of a kind that cannot be tailed correctly. It is refused rather than tailed incorrectly."""

    code: str = "log-unsupported"


class MarkerStoreError(Fatal):
    """A datamarker could not be stored or read."""

    code: str = "marker-store-failed"


class EpochRefused(Fatal):
    """The flow has a newer owner: this one must stop acting for it.

    ``held_epoch``: the epoch in which the flow is held by that owner; 0: not known.
    """

    code: str = "owner-elsewhere"

    def __init__(
        self,
        message: str,
        *,
        held_epoch: int = 0,
        shard: str | None = None,
        flow: str | None = None,
        position: str | None = None,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, shard=shard, flow=flow, position=position, hint=hint, code=code)
        self.held_epoch = held_epoch


class ArchiveError(Fatal):
    """The archive is damaged, has a hole, or was written by a newer release; names the file or the range."""

    code: str = "archive-damaged"


class ReplayError(Fatal):
    """A mass replay cannot continue; the message has the flow's state."""

    code: str = "replay-stopped"


class ProtocolError(Fatal):
    """The other side broke the wire protocol; names the frame and the field."""

    code: str = "protocol-broken"


class ModelMismatch(Fatal):
    """A row does not fit the application's model; names the update, the table, and the columns or fields."""

    code: str = "model-mismatch"


class TargetRefused(Fatal):
    """What the application stored in its own database does not fit its flow: to continue would lose or repeat effects.

    Raised by a callback: the flow halts at once, without further attempts.
    """

    code: str = "target-refused"


class HandlerFailed(Fatal):
    """The application's callback failed for an update until its retries were exhausted."""

    code: str = "handler-failed"


class UsageError(WormholeError):
    """The request is wrong: correct it."""

    code: str = "wrong-request"

    @classmethod
    def not_installed(cls, error: ModuleNotFoundError, requirement: str) -> UsageError:
        """The error for a module that could not be imported, with what to install."""
        return cls(
            f"this command needs {error.name}, which is not installed",
            hint=f"pip install '{requirement}'",
            code="extra-missing",
        )


class ConfigError(UsageError):
    """Configuration is wrong; the message names file, field, value and what is allowed, all problems in one."""

    code: str = "config-invalid"


class FilterError(UsageError):
    """A filter does not parse, or cannot be decided for this source."""

    code: str = "filter-invalid"


class PositionError(UsageError):
    """The text is no position of this log."""

    code: str = "position-invalid"


class UnknownApplication(UsageError):
    """No such application is configured; the hint holds the configuration to add."""

    code: str = "application-unknown"
