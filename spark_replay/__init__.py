"""Mass replay: the archive of a dataset in Parquet, and the PySpark jobs on it.

::

    archive   a subscriber that writes Parquet (``archiver``), its manifests with compare-and-set (``manifest``,
              ``store``), their ranges (``coverage``), verification (``verify``), retention
    replay    pushes updates of the archive again: the plan (``flow_plans``, ``mode``), a Spark job (``driver``,
              ``task``) that uses the wire of publishers (``delivery``), every change or the last of each key
              (``latest``)
    tables    queries: snapshot, history, rows as columns, a streaming source
    audit     compares the archived updates with the delivered and processed ones
    spark     starts a Spark session
    commands  the commands of ``wormholectl`` for all of these

The package imports only ``wormhole`` and ``subscriber_sdk``. ``commands`` also imports the command line and, for a
baseline, the publisher. PySpark is imported when it is first needed, because archiving needs pyarrow only.

An application's own queries use :func:`register` (the format ``wormhole``), or :func:`open_store`, then :func:`read`
and :func:`stream` for updates, :func:`rows` and :func:`history` for tables, and :func:`reading` for errors. A program
replays with :func:`run_replay`, :func:`plan_replay` and :func:`cancel_replay`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spark_replay.archive.store import open_store
    from spark_replay.frames import reading
    from spark_replay.replay.job import Replay, cancel_replay, plan_replay, run_replay
    from spark_replay.tables.history import history
    from spark_replay.tables.rows import read, rows
    from spark_replay.tables.source import register, stream

__all__ = [
    "Replay",
    "cancel_replay",
    "history",
    "open_store",
    "plan_replay",
    "read",
    "reading",
    "register",
    "rows",
    "run_replay",
    "stream",
]

_WHERE: Final = {
    "Replay": "spark_replay.replay.job",
    "cancel_replay": "spark_replay.replay.job",
    "plan_replay": "spark_replay.replay.job",
    "run_replay": "spark_replay.replay.job",
    "history": "spark_replay.tables.history",
    "open_store": "spark_replay.archive.store",
    "read": "spark_replay.tables.rows",
    "reading": "spark_replay.frames",
    "register": "spark_replay.tables.source",
    "rows": "spark_replay.tables.rows",
    "stream": "spark_replay.tables.source",
}


def __getattr__(name: str) -> Any:
    # These modules are imported at their first use, because the archiver's process reads no tables.
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
