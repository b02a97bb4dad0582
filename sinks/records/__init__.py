"""Turns updates into records (documents with ids), and writes them in order to stores that cannot roll back.

::

    record        one record, and the envelope that makes records of an update
    writer        the port that a kind implements: write records in order, and wait until the store has them
    subscriber    receives updates, buffers incomplete transactions, and writes complete ones
    confirmed     remembers which records a store keeps after a rollback
    held          the buffer for incomplete transactions of one shard, in memory and then in a file
    threads       runs blocking calls in threads
"""

from sinks.records.record import Envelope, NoForm, Record
from sinks.records.subscriber import RecordSubscriber
from sinks.records.writer import RecordRefused, RecordWriter

__all__ = ["Envelope", "NoForm", "Record", "RecordRefused", "RecordSubscriber", "RecordWriter"]
