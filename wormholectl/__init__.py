"""``wormholectl``: the command line. It imports every other part, and only when a command needs it.

One module per noun or command (``flows``, ``markers``, ``archive``, ``hosts``, ``config``, ``tail``, ...) declares it
and carries it out; what several need is a module of its own: ``options``, ``confirm``, ``flow_change``,
``archive_choice``, ``config_file``, ``host_status``. A module of a noun is imported for ``--help`` too, so it imports
what takes long in its functions.

Who is asked: ``discovery`` finds publishers and coordinators, ``admin_client`` asks publishers. ``why_lag``,
``lag_verdict``, ``installation`` and ``redact`` decide without asking. ``show`` is how things are printed. ``guard``
turns errors into messages and exit codes.
"""

from __future__ import annotations

import sys

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
