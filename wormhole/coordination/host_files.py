"""The files of the static form: an operator's request for this host, tokens, and the history of changes.

Files are replaced in one step, so a reader sees the old file or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wormhole.coordination.access_tokens import AccessToken
from wormhole.coordination.port import HISTORY_KEPT, HistoryEntry, HostRequest
from wormhole.coordination.records import (
    history_from_json,
    history_to_json,
    host_from_json,
    host_to_json,
    tokens_from_json,
    tokens_to_json,
)
from wormhole.coordination.rules import tokens_changed
from wormhole.host.private_files import private_folder, private_opener
from wormhole.model.errors import ConfigError
from wormhole.model.replace_file import replace_file

__all__ = ["HostFiles"]

# The file is trimmed after it grew by this many entries, so that not every entry rewrites it.
_SPARE: Final = 100


class HostFiles:
    """``history.jsonl``, ``hosts/HOST.json`` (the host's request) and ``tokens/APPLICATION.json`` below ``state_dir``.

    Methods block, and raise :class:`~wormhole.model.errors.ConfigError` for a file that cannot be read or written.
    """

    def __init__(self, state_dir: Path) -> None:
        self._history = state_dir / "history.jsonl"
        self._hosts = state_dir / "hosts"
        self._tokens = state_dir / "tokens"

    def request(self, host: str) -> HostRequest:
        """The request for the host."""
        path = self._hosts / f"{host}.json"
        return host_from_json(_content(path), str(path))

    def set_request(self, host: str, request: HostRequest) -> None:
        """Store the request for the host."""
        _replace(self._hosts / f"{host}.json", host_to_json(request))

    def tokens(self, application: str) -> tuple[AccessToken, ...]:
        """The tokens of the application."""
        path = self._tokens / f"{application}.json"
        return tokens_from_json(_content(path), str(path))

    def token_holders(self) -> tuple[str, ...]:
        """The applications that have tokens."""
        names = sorted(path.stem for path in self._tokens.glob("*.json"))
        return tuple(name for name in names if self.tokens(name))

    def set_tokens(self, application: str, tokens: Collection[AccessToken], seen: Collection[AccessToken]) -> None:
        """Store the tokens of the application, if those in ``seen`` are stored."""
        path = self._tokens / f"{application}.json"
        with _locked(path):
            if self.tokens(application) != tuple(seen):
                raise tokens_changed(application)
            _replace(path, tokens_to_json(tokens))

    def record(self, entry: HistoryEntry) -> None:
        """Add an entry; durable when it returns."""
        with _locked(self._history):
            lines = self._lines()
            line = history_to_json(entry)
            if len(lines) < HISTORY_KEPT + _SPARE and (not lines or lines[-1].endswith(b"\n")):
                with open(self._history, "ab", opener=private_opener) as file:
                    file.write(line + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
            else:  # too long, or its end was torn off by a crash
                whole = [old for old in lines if old.endswith(b"\n")][-HISTORY_KEPT + 1 :]
                _replace(self._history, b"".join([*whole, line + b"\n"]))

    def history(self, limit: int) -> tuple[HistoryEntry, ...]:
        """The last entries, newest first. A line that is no valid entry (torn off by a crash) is left out."""
        found: list[HistoryEntry] = []
        for line in reversed(self._lines()[-HISTORY_KEPT:]):
            if len(found) == limit:
                break
            with contextlib.suppress(ConfigError):
                found.append(history_from_json(line, str(self._history)))
        return tuple(found)

    def _lines(self) -> list[bytes]:
        try:
            return self._history.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(f"{self._history}: cannot be read: {error}", code="record-invalid") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = _open_lock(path.with_suffix(".lock"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _write_errors(path):
            yield
    finally:
        os.close(lock)


def _content(path: Path) -> bytes:
    """The content of the file; empty if the file does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}", code="record-invalid") from error


def _open_lock(path: Path) -> int:
    with _write_errors(path):
        private_folder(path.parent)
        return private_opener(str(path), os.O_RDWR | os.O_CREAT)


def _replace(path: Path, data: bytes) -> None:
    with _write_errors(path):
        private_folder(path.parent)
        replace_file(path, data, opener=private_opener)


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror or error}",
            hint="check publisher.state_dir: its owner, its disk",
            code="file-unwritable",
        ) from error
