"""The interface to a store that the test module of a kind implements for the contract suite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Final

from sinks.port import Sink, SinkKind
from subscriber_sdk.testing import Change
from wormhole.model.values import Value

__all__ = ["TABLES", "RecordHarness", "Row", "RowHarness", "SinkHarness"]

TABLES: Final = ("shop.orders", "shop.lines")
"""The tables of every log of the suite. Their key is the integer ``id``."""

Row = Mapping[str, Value]
"""The columns of a row beside its key."""


class SinkHarness(ABC):
    """A running store without content of the sink. Objects that an operator has to make for :data:`TABLES` exist.

    ``refused``: an insert into the first of the tables that the store refuses for its content; ``None``: there is none.
    """

    kind: ClassVar[SinkKind[Any]]
    refused: Change | None = None

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, object]:
        """The table ``[sinks.NAME]`` as a configuration has it."""

    @abstractmethod
    def away(self) -> AbstractContextManager[object]:
        """A context within which the store cannot be reached. Afterwards the store has the same content as before."""

    def open(self) -> Sink:
        """A sink, as one more process opens it."""
        return self.kind.open("contract", self.kind.settings.model_validate(self.settings))


class RecordHarness(SinkHarness):
    """A store that keeps a record of each update."""

    @abstractmethod
    def ids(self) -> Sequence[str]:
        """The ids of the updates whose records a consumer reads, in the store's order."""


class RowHarness(SinkHarness):
    """A store that keeps the last state of each row."""

    @abstractmethod
    def rows(self, table: str) -> Mapping[int, Row]:
        """The rows of one of :data:`TABLES` by their key. A column that a row lacks is absent, or ``None``."""

    @abstractmethod
    def remove(self, table: str, key: int) -> None:
        """Remove a row behind the sink's back."""
