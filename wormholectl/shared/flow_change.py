"""Makes one change of a flow: shows the preview, asks, makes the change, and shows the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wormholectl.shared.confirm import confirm

if TYPE_CHECKING:
    from wormhole.admin import Change

__all__ = ["change_flow"]


def change_flow(question: str, change: Callable[[bool], Change], yes: bool, as_json: bool) -> None:
    """Make a change of a flow, with a preview and a question before it. ``yes``: do not ask. Nothing is changed before
    the question is answered.

    ``change``: makes the change; called with ``True``, it only previews the change. In JSON the first object is the
    preview (``changed`` is false), and the last object is the result. Raises
    :class:`~wormhole.model.errors.WormholeError`.
    """
    from wormholectl.show.changes import show_change

    if not yes:
        show_change(change(True), as_json)
    confirm(question, yes)
    show_change(change(False), as_json)
