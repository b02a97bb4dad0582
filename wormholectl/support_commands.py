"""The command ``support-dump``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wormholectl.options import AsJson, with_where

if TYPE_CHECKING:
    from wormholectl.discovery import Where

__all__ = ["app"]

app = typer.Typer()


@app.command("support-dump", epilog="Example:\n\n  wormholectl support-dump -c shop.toml --output dump.tar.gz")
@with_where
def support_dump(
    where: Where,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The .tar.gz to write; default: named by the time."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Gather versions, configuration, state, the ends of logs and the doctor's report into one file, without secrets."""
    from wormholectl.support_dump import dump

    dump(where, output, as_json)
