"""``wormholectl``: the command line. It imports the other parts of the product only when a command needs them.

Each noun has a folder: its verbs are in ``commands``, its decisions and its output in other modules. A small noun is
one module. ``app`` joins the nouns. ``--help`` imports the modules of commands too. So their functions import slow
modules themselves, and they omit ``from __future__ import annotations``, because Typer would compile each annotation.

Several nouns share ``shared`` (``options``, ``errors``, ``confirm``, ...), ``logs`` (a log at a URL) and ``show``
(printing). ``wormhole.admin`` finds and queries publishers.

The commands of archive and Spark are in ``spark_replay.commands``. Like commands of other packages, they are entry
points of the group ``wormhole.commands``. ``app`` imports such a command when it is used.
"""

from __future__ import annotations

import sys

import wormhole  # noqa: F401 - first, because it reports a Python that is too old

__all__ = ["main"]


def main() -> None:
    """Entry point of the command ``wormholectl``.

    The base installation contains only the SDK and this command, because an extra cannot add a command. Without the
    packages of the command line, the command names the extra to install.
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
