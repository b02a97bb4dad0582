"""Shows the progress of a sink's backfill on the terminal in which the sink runs."""

import logging
import threading
from pathlib import Path
from typing import Final

from wormhole.admin import admin_service
from wormhole.host.where import Where
from wormhole.model.errors import WormholeError
from wormhole.wire.backfills import has_ended
from wormholectl.backfill.flows import backfills_of
from wormholectl.show.backfills import ProgressLine, progress_line
from wormholectl.show.printer import print_progress, print_text

__all__ = ["begin_progress", "show_progress"]

_EVERY_S: Final = 1.0


def begin_progress(application: str, config: Path) -> None:
    """Show the progress as long as this process lives. Log lines are printed above the progress bar."""

    def clears(record: logging.LogRecord) -> bool:
        print_progress("")
        return True

    for handler in logging.getLogger().handlers:
        handler.addFilter(clears)
    where = Where(coordinator=str(config))
    threading.Thread(
        target=show_progress, args=(application, where, threading.Event()), name="progress", daemon=True
    ).start()


def show_progress(application: str, where: Where, ended: threading.Event) -> None:
    """Ask the publishers every second until ``ended``. Shows a bar while rows are sent, and a line at the end."""
    line = ProgressLine(application, as_json=False)
    shown = False
    while not ended.wait(_EVERY_S):
        try:
            found = [one for one in backfills_of(admin_service.ask(where), application) if one.status is not None]
        except WormholeError:
            continue  # the sink's log reports a publisher that cannot be reached
        if any(one.status is not None and not has_ended(one.status) for one in found):
            line.show(found, ())
            shown = True
        elif shown:
            line.close()
            print_text(f"existing rows: {progress_line(found)}", error=True)
            shown = False
