"""Reads and writes the documents in which a source keeps facts about the servers of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wormhole.host.state_file import FolderState
from wormhole.model.errors import Retryable, SourceUnavailable, WormholeError
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.source_state import HISTORIES, SourceState

__all__ = ["keep", "load", "load_incarnations", "not_ours", "state_of"]


def state_of(options: SourceOptions, folder: Path) -> SourceState:
    """The store of the source's documents: its own folder ``folder``, or a state that several hosts share."""
    return FolderState(folder) if options.state is None else options.state


def load(state: SourceState, name: str) -> dict[str, Any]:
    """Read a document; empty if it does not exist. Raises :class:`~wormhole.model.errors.SourceUnavailable`."""
    try:
        return state.read(name)
    except OSError as error:
        raise SourceUnavailable(
            f"{name}.json cannot be read in {state}: {error.strerror}",
            hint="let the publisher's user read its state_dir; a retry follows",
            code="file-unwritable",
        ) from error
    except WormholeError as error:
        raise SourceUnavailable(
            f"what is known of the log's servers cannot be read ({name}): {error.message}",
            hint=error.hint,
            code="file-unwritable",
        ) from error


def load_incarnations(state: SourceState, **fields: type) -> list[dict[str, Any]]:
    """The incarnations in the histories, oldest first. Each has a ``number`` and ``fields`` of these types.

    Raises :class:`~wormhole.model.errors.SourceUnavailable`, also for a document that has another form.
    """
    found, wanted = load(state, HISTORIES).get("incarnations", []), {"number": int, **fields}
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and all(type(one.get(name)) is kind for name, kind in wanted.items()) for one in found
    ):
        raise not_ours(state, HISTORIES)
    return found


def not_ours(state: SourceState, name: str) -> SourceUnavailable:
    """The error for a document that has another form than a source writes."""
    return SourceUnavailable(
        f"{name}.json in {state} holds nothing that a publisher wrote",
        hint="restore it from a backup, or delete it: the source then finds out anew which server it reads, and holds "
        "flows whose datamarkers it cannot prove",
        code="record-invalid",
    )


def keep(state: SourceState, name: str, content: dict[str, Any]) -> None:
    """Replace a document. Raises :class:`~wormhole.model.errors.SourceUnavailable`, and every other
    :class:`~wormhole.model.errors.Retryable` that the state raises.
    """
    try:
        state.write(name, content)
    except OSError as error:
        raise SourceUnavailable(
            f"{name}.json cannot be written in {state}: {error.strerror}",
            hint="make space in the publisher's state_dir",
            code="file-unwritable",
        ) from error
    except Retryable:
        raise
    except WormholeError as error:
        raise SourceUnavailable(
            f"what is known of the log's servers cannot be written ({name}): {error.message}",
            hint=error.hint,
            code="file-unwritable",
        ) from error
