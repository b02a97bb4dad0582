"""One change of a flow: what it would do, the question, the change, the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wormholectl.shared.confirm import confirm

if TYPE_CHECKING:
    from wormhole.admin import Change

__all__ = ["change_flow"]


def change_flow(question: str, change: Callable[[bool], Change], yes: bool, as_json: bool) -> None:
    """Preview a change of a flow, show it, ask, make the change, show the result.

    ``change``: makes it, or with ``True`` only previews it.

    With ``yes`` the change is made at once. For programs the first object is the preview (``changed`` false), the last
    one the result. Raises :class:`~wormhole.model.errors.WormholeError`; until the question is answered nothing is
    changed.
    """
    from wormholectl.show.changes import show_change

    if not yes:
        show_change(change(True), as_json)
    confirm(question, yes)
    show_change(change(False), as_json)
