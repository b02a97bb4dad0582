"""Mass replay: the archive of a dataset in Parquet, and what PySpark makes of it.

::

    archive   an ordinary subscriber that writes Parquet (``archiver``), and its bookkeeping: manifests with compare-and-set
              (``manifest``, ``store``), what is covered (``coverage``), whether it is whole (``verify``), retention
    replay    updates of the archive pushed to the subscribers again: which (``plan``, pure), by a Spark job (``driver``, ``task``),
              over the wire that publishers use (``push``), every change or the last of each key (``latest``)
    tables    what people query: snapshot, history, rows as columns, a streaming source
    audit     what was archived against what was delivered and processed
    spark     how a Spark session is made

Only ``wormhole`` and ``subscriber_sdk`` are imported. Nothing here imports PySpark before it is needed: archiving needs pyarrow only.
"""
