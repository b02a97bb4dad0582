"""The command ``explain``: shows the meaning of a problem's code, and the next step."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.shared.options import AsJson

__all__ = ["app"]

app = typer.Typer()

_EXAMPLES: Final = """Examples:

  wormholectl explain marker-purged

  wormholectl explain
"""


@app.command(epilog=_EXAMPLES)
def explain(
    code: Annotated[
        str, typer.Argument(metavar="[CODE]", help="As in the brackets of a message; all if none is given.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Say what the code of an error or a problem means, where to look and what to do."""
    from wormhole.problems.catalogue import entries
    from wormholectl.show.explained import show_codes, show_entry

    known = entries()
    if not code:
        show_codes(known.values(), as_json)
    elif code in known:
        show_entry(known[code], as_json)
    else:
        raise _unknown(code, known)


def _unknown(code: str, known: Iterable[str]) -> UsageError:
    near = get_close_matches(code, known, n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return UsageError(f'no problem has the code "{code}"{meant}', hint="`wormholectl explain` lists all codes")
