"""The command ``wormholectl sink``, which the command line finds as an entry point.

A module of commands is imported for ``--help`` too, so its functions import what takes long, and it does without
``from __future__ import annotations``: Typer would compile each annotation.
"""
