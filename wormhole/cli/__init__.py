"""``wormholectl``: the one part of ``wormhole`` that may import the others, and only when a command needs them.

``app`` the commands -> ``tail``, ``status``, ``operate`` what they do -> ``render`` updates as lines and JSON, ``output`` how
things are printed, ``admin_client`` what a publisher tells, ``guard`` errors to messages and exit codes.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the command ``wormholectl``."""
    from wormhole.cli.app import app

    app(prog_name="wormholectl")
