"""The commands of ``wormholectl`` for archive, replay, tables, audit and Spark, which it finds as entry points.

The commands use its options, errors and printer (``wormholectl.shared`` and ``wormholectl.show``). No other part of
``spark_replay`` imports the command line, and it imports no part of ``spark_replay``. ``show_*`` print results.

A module of commands is imported for ``--help`` too. So large modules are imported within functions, and ``from
__future__ import annotations`` is left out, because Typer would compile each annotation.
"""
