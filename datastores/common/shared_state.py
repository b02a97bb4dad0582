"""Opens the state of a source: facts about the log's servers, shared by the hosts whose publishers may own the log.

With a shared state an incarnation is the same history of the same server for every publisher. So each publisher can use
a datamarker that another one stored. The documents are empty when the first publisher opens the log. It copies them
from its own folder, where an earlier release kept them.
"""

from __future__ import annotations

import logging
from pathlib import Path

from datastores.common.high_water import HighWater
from datastores.common.kept_state import keep, load, state_of
from wormhole.host.state_file import FolderState
from wormhole.model.errors import SourceUnavailable
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.source_state import HISTORIES, SourceState

__all__ = ["make_state_dir", "open_state"]

_log = logging.getLogger(__name__)


def make_state_dir(folder: Path) -> None:
    """Create a source's folder if it does not exist. Raises :class:`~wormhole.model.errors.SourceUnavailable`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceUnavailable(
            f"{folder} cannot be made: {error.strerror}",
            hint="name a state_dir that may be written to",
            code="file-unwritable",
        ) from error


def open_state(options: SourceOptions, folder: Path, *names: str) -> tuple[SourceState, HighWater]:
    """The store of the source's documents, and how far the log was read. ``folder``: the source's own folder.
    ``names``: the documents besides the histories.

    Raises as :func:`~datastores.common.kept_state.load` and :func:`~datastores.common.kept_state.keep`.
    """
    state = state_of(options, folder)
    path = folder / "read.bin"
    if options.state is not None and not load(state, HISTORIES):
        _take_over(state, folder, path, names)
    return state, HighWater(path, options.state)


def _take_over(shared: SourceState, folder: Path, path: Path, names: tuple[str, ...]) -> None:
    own = FolderState(folder)
    histories = load(own, HISTORIES)
    if not histories:
        return
    _log.warning(
        "what %s knows of the log's servers is taken over: it counts for every host that may own the log from now on. "
        "Next: nothing, if this host served the log last",
        folder,
    )
    HighWater(path).copy_to(shared)
    for name in names:
        keep(shared, name, load(own, name))
    keep(shared, HISTORIES, histories)  # written last: after a crash before it, the next start copies all again
