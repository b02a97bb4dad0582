"""``wormholectl``: the command line. It imports every other part, and only when a command needs it.

One module per noun or command (``flows``, ``markers``, ``archive``, ``hosts``, ``config``, ``tail``, ...) declares it
and carries it out; ``app`` joins them. Such a module is imported for ``--help`` too, so its functions import what takes
long, and it does without ``from __future__ import annotations``: Typer would compile each annotation.

Shared by several commands: ``options``, ``confirm``, ``flow_change``, ``host_status``, ``sources``,
``errors`` (exceptions become messages and exit codes). ``wormhole.admin`` finds and asks publishers. ``why_lag``,
``lag_verdict``, ``installation`` and ``redact`` decide without asking. ``show`` prints.
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
