"""The noun ``backfill``, and the commands ``verify`` and ``repair``. All of them read rows that tables hold already."""
