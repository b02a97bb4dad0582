"""The command ``wormholectl sink``, which the command line finds as an entry point.

A module of commands is imported for ``--help`` too, so slow imports are inside its functions. It lacks ``from
__future__ import annotations``, because Typer would compile each annotation.
"""
