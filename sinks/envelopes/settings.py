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
    """The settings of documents. ``envelope``: their form. ``source_database``: the name of the source's database, if
    the names of tables begin with a schema (PostgreSQL); only the envelope ``debezium`` uses it.
    """

    envelope: EnvelopeName = "wormhole"
    source_database: str | None = None


class HeldSettings(SinkSettings):
    """The buffer limits of a store that cannot roll back, which must not receive incomplete transactions.

    ``hold_memory``: bytes in memory, for all shards together; ``hold_disk``: further bytes in temporary files;
    ``hold_folder``: the folder of these files; ``None``: the system's folder.
    """

    hold_memory: Size = 64 << 20
    hold_disk: Size = 1 << 30
    hold_folder: PathFromHere | None = None

    @property
    def budget(self) -> Budget:
        """A new budget with these limits. Blocks. Raises :class:`~wormhole.model.errors.UsageError` if temporary files
        cannot be made.
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
    """The settings of a store that cannot roll back and takes documents."""


def record_subscriber(settings: HeldRecordSettings, writer: RecordWriter) -> RecordSubscriber:
    """The subscriber that writes with ``writer``."""
    return RecordSubscriber(envelope_named(settings.envelope, settings.source_database), writer, settings.budget)
