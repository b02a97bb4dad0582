"""The settings that every kind with records has."""

from __future__ import annotations

from sinks.envelopes.names import EnvelopeName, envelope_named
from sinks.port import SinkSettings
from sinks.records.held import Budget
from sinks.records.subscriber import RecordSubscriber
from sinks.records.writer import RecordWriter
from wormhole.config.fields import PathFromHere, Size

__all__ = ["HeldRecordSettings", "RecordSettings", "record_subscriber"]


class RecordSettings(SinkSettings):
    """``envelope``: the form of the documents. ``source_database``: the database that they come from, where an update
    names its table by the schema (PostgreSQL); only the envelope ``debezium`` contains it.
    """

    envelope: EnvelopeName = "wormhole"
    source_database: str | None = None


class HeldRecordSettings(RecordSettings):
    """For a store that cannot roll back: what the transactions that are not complete may take, in bytes.

    ``hold_memory``: in memory, of all shards together; ``hold_disk``: in temporary files beyond that; ``hold_folder``:
    where those are; ``None``: the system's folder.
    """

    hold_memory: Size = 64 << 20
    hold_disk: Size = 1 << 30
    hold_folder: PathFromHere | None = None


def record_subscriber(settings: HeldRecordSettings, writer: RecordWriter) -> RecordSubscriber:
    """The subscriber that writes with ``writer``."""
    budget = Budget(settings.hold_memory, settings.hold_disk, settings.hold_folder)
    return RecordSubscriber(envelope_named(settings.envelope, settings.source_database), writer, budget)
