"""Readers: what each does with the bytes, and which programs it is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from benchmarks.peers.binlog import Binlog, Mark

__all__ = ["BinlogReader", "Program", "Programs", "Reader"]

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Program:
    """One process of a reader. ``ready``: the next one starts when it has printed that line. ``outcome``: it prints the
    outcome and ends. ``piped``: the next one reads its standard output.
    """

    words: Sequence[str]
    ready: bool = False
    outcome: bool = False
    piped: bool = False


Programs = Callable[[Binlog, Mark, Path], Sequence[Program]]
"""The programs of a run, in the order in which they start; the path is an empty folder for it."""


@dataclass(frozen=True)
class Reader(Generic[P]):
    """One row of the table. ``does``: with the bytes of a row. ``programs``: makes those of a run.

    ``divisor``: it reads that part of the shape's rows, because all would take minutes. ``needs``: programs that are
    built when it is asked for, by name. ``missing``: why it cannot run.
    """

    name: str
    does: str
    programs: P
    reads_values: bool = True
    divisor: int = 1
    needs: tuple[str, ...] = ()
    missing: str = ""


BinlogReader = Reader[Programs]
