"""Names that the shell completes, asked of the publishers; whatever fails, there is nothing to offer."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from wormholectl import admin_client
from wormholectl.discovery import Where

__all__ = ["application_names", "flow_names"]

# A shell puts what it completes into the line as it is: a name must be no more than a word to it.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./@%+=,:-]+", re.ASCII)


def flow_names(ctx: Any, incomplete: str) -> list[str]:
    """The flows whose name begins like that."""
    return sorted(name for name in _flows(ctx) if name.startswith(incomplete))


def application_names(ctx: Any, incomplete: str) -> list[str]:
    """The applications, of which there are flows, whose name begins like that."""
    return sorted({name.partition("/")[0] for name in _flows(ctx) if name.startswith(incomplete)})


def _flows(ctx: Any) -> list[str]:
    given: dict[str, Any] = {}
    above = ctx
    while above is not None:
        given = {**{name: value for name, value in above.params.items() if value}, **given}
        above = above.parent
    coordinator = given.get("coordinator") or os.environ.get("WORMHOLE_COORDINATOR", "")
    try:
        answers = admin_client.ask(Where(given.get("publisher", ""), coordinator))
    except Exception:  # noqa: BLE001  # a shell that completes a word has no place for any error
        return []
    names = [flow.flow for answer in answers if answer.status is not None for flow in answer.status.flows]
    return [name for name in names if _PLAIN.fullmatch(name)]
