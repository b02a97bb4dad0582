"""``wormholectl``: the command line. It imports the other parts, and only when a command needs them.

One folder per noun, with its verbs in ``commands``, what it decides, and what it alone prints; a small noun is one
module. ``app`` joins them. A module of commands is imported for ``--help`` too, so its functions import what takes
long, and it does without ``from __future__ import annotations``: Typer would compile each annotation.

What several nouns share is in ``shared`` (``options``, ``errors``, ``confirm``, ...), ``logs`` (a log at a URL) and
``show`` (printing). ``wormhole.admin`` finds and asks publishers.

The commands of archive and Spark are in ``spark_replay.commands``. They are entry points of the group
``wormhole.commands``, as those of other packages are, and ``app`` imports one when it is used.
"""

from __future__ import annotations

import sys

import wormhole  # noqa: F401 - first, because it reports a Python that is too old

__all__ = ["main"]


def main() -> None:
    """Entry point of the command ``wormholectl``.

    The base installation is the SDK alone. It also gets this command, because an extra cannot add one; without the
    command line's packages the command names the extra.
    """
    try:
        from wormholectl.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in {"rich", "typer"}:
            raise
        sys.exit(
            f"wormholectl: the package {missing.name} is not installed. Next: pip install 'wormhole-pubsub[cli]', or "
            "the extra of a role: publisher, monitor, archive or spark, which contain it"
        )

    app(prog_name="wormholectl")
