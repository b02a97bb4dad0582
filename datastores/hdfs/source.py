"""The edits of a NameNode as a log source: implements :class:`~wormhole.ports.log_source.LogSource`."""

from __future__ import annotations

from datastores.hdfs.java.name_node import NameNode
from datastores.hdfs.log.places import EditLog, is_ours, place_after
from datastores.hdfs.log.reader import EditReader
from datastores.hdfs.log.rows import Rows
from datastores.hdfs.url import Address
from wormhole.model.errors import PositionError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.log_source import SourceStatus
from wormhole.ports.log_times import begins_later

__all__ = ["HdfsSource"]


class HdfsSource:
    """See the port. One JVM serves all readers."""

    def __init__(self, address: Address, options: SourceOptions) -> None:
        self._name_node = NameNode(address)
        self._log = EditLog(self._name_node)
        self._rows = Rows(options.log, options.sharding, options.max_update_bytes)
        self._folders: tuple[str, ...] = ()

    @property
    def pid(self) -> int:
        """The JVM's process id; 0: no JVM runs."""
        return self._name_node.pid

    def start(self) -> None:
        """See the port."""
        self._folders = self._name_node.state().folders
        self._log.end()
        self._log.begin()

    def stop(self) -> None:
        """See the port."""
        self._log.stop()
        self._name_node.stop()

    def earliest(self) -> Datamarker:
        """See the port."""
        return self._log.marker(self._log.begin() - 1)

    def latest(self) -> Datamarker:
        """See the port."""
        return self._log.marker(self._log.end())

    def locate(self, text: str) -> Datamarker:
        """See the port. A logical position is a transaction's number, and means the place after that transaction."""
        if text == "earliest":
            return self.earliest()
        if text == "latest":
            return self.latest()
        if text.isascii() and text.isdecimal():
            place = LogPosition.parse(f"1/1/{text}")
        elif not is_ours(place := LogPosition.parse(text)):
            raise PositionError(f"{text} is no place of this log", hint="places are 1/1/TRANSACTION")
        end, begin = self._log.end(), self._log.begin()
        if place.offset > end:
            raise PositionError(f"{text} is ahead of the log, which ends at {place_after(end)}", hint="use latest")
        if place.offset + 1 < begin:
            raise self._log.purged(place.offset, begin)
        return self._log.marker(place.offset)

    def locate_time(self, at_us: int) -> Datamarker:
        """See the port. A NameNode's times are milliseconds of its clock, and not every transaction has one."""
        begin, end = self._log.begin(), self._log.end()
        first_us = self._log.time_from(begin)
        if first_us is not None and first_us > at_us:
            raise begins_later(self._log.marker(begin - 1), first_us)
        low, high = begin, end + 1  # the range that holds the first later transaction
        while low < high:
            middle = (low + high) // 2
            found = self._log.time_from(middle)
            if found is None or found > at_us:
                high = middle
            else:
                low = middle + 1
        return self._log.marker(low - 1)

    def open(self, marker: Datamarker) -> EditReader:
        """See the port."""
        self._log.prove(marker)
        return EditReader(self._log, self._rows, marker)

    def shards(self) -> frozenset[str]:
        """See the port."""
        return self._rows.shards(self._folders)

    def release(self, oldest: LogPosition) -> None:
        """See the port. The NameNode's own settings decide how long it keeps edits."""

    def status(self) -> SourceStatus:
        """See the port."""
        log = self._log
        end, problems = place_after(log.last), (log.unproven,) if log.unproven else ()
        return SourceStatus(
            end, place_after(log.first - 1), 0, problems, files=((end.file, end.offset),), end_unknown=log.silent
        )
