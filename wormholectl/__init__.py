"""``wormholectl``: the command line. It imports every other part, and only when a command needs it.

``app`` puts together the ``*_commands``, which say options and help (``options``: those of several) -> what they do: ``tail``, ``explain``,
``listing`` of flows and all the rest, ``changing`` of a flow with its preview and question, ``hosts``, ``configuring``, ``top``, ``support_dump``,
``up`` -> who is asked: ``discovery`` where publishers are, ``admin_client`` what they tell and are asked to change. ``why_lag``, ``lag_probe``,
``installation`` and ``redact`` decide without asking anybody. ``output`` and ``render`` are how things are printed, ``guard`` turns errors into
messages and exit codes.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the command ``wormholectl``."""
    from wormholectl.app import app

    app(prog_name="wormholectl")
