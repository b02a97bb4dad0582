"""The noun ``backfill``, and ``verify`` and ``repair``, which are backfills too: the rows that tables hold already."""
