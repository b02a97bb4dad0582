"""Updates as records, for stores that cannot roll back.

::

    record        one record, and the envelope that makes records of an update
    writer        what a kind implements: write records in order, and wait until the store has them
    subscriber    receives updates, holds back transactions that are not complete, and writes the others
    confirmed     which records a store keeps after a rollback
    held          the records of one shard that are held back, in memory and then in a file
    threads       calls that block
"""

from sinks.records.record import Envelope, NoForm, Record
from sinks.records.subscriber import RecordSubscriber
from sinks.records.writer import RecordRefused, RecordWriter

__all__ = ["Envelope", "NoForm", "Record", "RecordRefused", "RecordSubscriber", "RecordWriter"]
