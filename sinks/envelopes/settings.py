"""The settings that every kind with records has."""

from __future__ import annotations

import tempfile

from sinks.envelopes.names import EnvelopeName, envelope_named
from sinks.port import SinkSettings
from sinks.records.held import Budget
from sinks.records.subscriber import RecordSubscriber
from sinks.records.writer import RecordWriter
from wormhole.config.fields import PathFromHere, Size
from wormhole.model.errors import UsageError

__all__ = ["HeldRecordSettings", "HeldSettings", "RecordSettings", "record_subscriber"]


class RecordSettings(SinkSettings):
    """``envelope``: the form of the documents. ``source_database``: the database that they come from, where an update
    names its table by the schema (PostgreSQL); only the envelope ``debezium`` contains it.
    """

    envelope: EnvelopeName = "wormhole"
    source_database: str | None = None


class HeldSettings(SinkSettings):
    """For a store that cannot roll back: what the transactions that are not complete may take, in bytes.

    ``hold_memory``: in memory, of all shards together; ``hold_disk``: in temporary files beyond that; ``hold_folder``:
    where those are; ``None``: the system's folder.
    """

    hold_memory: Size = 64 << 20
    hold_disk: Size = 1 << 30
    hold_folder: PathFromHere | None = None

    @property
    def budget(self) -> Budget:
        """A new budget of this size. Blocks.

        Raises :class:`~wormhole.model.errors.UsageError` if no file can be made.
        """
        try:
            tempfile.TemporaryFile(dir=self.hold_folder).close()
        except OSError as error:
            raise UsageError(
                f"no file can be made in {self.hold_folder or 'the folder of temporary files'}: {error.strerror}",
                hint="make the folder, or name another one with hold_folder of the sink",
            ) from None
        return Budget(self.hold_memory, self.hold_disk, self.hold_folder)


class HeldRecordSettings(HeldSettings, RecordSettings):
    """For such a store with documents."""


def record_subscriber(settings: HeldRecordSettings, writer: RecordWriter) -> RecordSubscriber:
    """The subscriber that writes with ``writer``."""
    return RecordSubscriber(envelope_named(settings.envelope, settings.source_database), writer, settings.budget)
