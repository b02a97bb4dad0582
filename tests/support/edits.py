"""Edits as a NameNode returns them, made of messages of Hadoop's form."""

from __future__ import annotations

from typing import Any, Final

from datastores.hdfs.decode.events import Edits
from datastores.hdfs.decode.messages import EditsResponse, class_of

__all__ = ["KINDS", "MadeEdits", "event"]

KINDS: Final = ("Create", "Close", "Append", "Rename", "MetadataUpdate", "Unlink", "Truncate")


def event(kind: str, **fields: Any) -> Any:
    """An event of the kind ``Create`` and so on, with the fields of its message."""
    message = class_of("EventProto")(type=KINDS.index(kind))
    message.contents = class_of(f"{kind}EventProto")(**fields).SerializeToString()
    return message


class MadeEdits:
    """The edits of a NameNode: transactions 1, 2, …, each with its events or with none.

    ``begin``: the oldest one that is kept. ``most``: events of one answer. ``asked``: the calls so far.
    """

    def __init__(self, most: int = 1000) -> None:
        self.transactions: list[list[Any]] = []
        self.begin = 1
        self.most = most
        self.asked: list[int] = []

    def commit(self, *events: Any) -> None:
        """Add a transaction."""
        self.transactions.append(list(events))

    def lose(self, count: int) -> None:
        """Lose the newest transactions, as a NameNode that is restored from an older image."""
        del self.transactions[len(self.transactions) - count :]

    def answer(self, txid: int) -> bytes:
        """What the NameNode returns for a transaction on."""
        end = len(self.transactions)
        response = EditsResponse()
        found = response.eventsList
        found.firstTxid = found.lastTxid = -1
        found.syncTxid = end
        events = 0
        for number in range(max(txid, self.begin), end + 1):
            if found.firstTxid < 0:
                found.firstTxid = number
            found.lastTxid = number
            if self.transactions[number - 1]:
                found.batch.add(txid=number, events=self.transactions[number - 1])
                events += len(self.transactions[number - 1])
            if events >= self.most:
                break
        data: bytes = response.SerializeToString()
        return data

    def edits(self, txid: int) -> Edits:
        """See :class:`datastores.hdfs.java.name_node.NameNode`."""
        self.asked.append(txid)
        return Edits.decode(self.answer(txid))
