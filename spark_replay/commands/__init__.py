"""The commands of ``wormholectl`` for archive, replay, tables, audit and Spark, which it finds as entry points.

They use its options, its errors and its printer (``wormholectl.shared`` and ``wormholectl.show``). Nothing else here
imports the command line, and the command line imports nothing of here. ``show_*`` print what one noun shows.

A module of commands is imported for ``--help`` too, so its functions import what takes long, and it does without
``from __future__ import annotations``: Typer would compile each annotation.
"""
