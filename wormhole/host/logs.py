"""Logging of the product's processes: for people on a terminal, one JSON object a line everywhere else.

Modules log with the standard library's ``logging`` and name the subject of a line in ``extra`` (:data:`FIELDS`).
Commands and daemons call :func:`configure`; ``subscriber_sdk.run`` calls :func:`configure_if_unset`, because the
process is the application's.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

from wormhole.model.errors import ConfigError, WormholeError
from wormhole.model.problem import Problem
from wormhole.model.visible import visible, visible_json, visible_lines

__all__ = ["FIELDS", "TextFormatter", "bind", "configure", "configure_if_unset"]

FIELDS: Final = ("dataset", "copy", "log", "host", "shard", "flow", "place", "epoch", "subscriber", "publisher")
"""The names that a line may have in addition to its message. Anything else given as ``extra`` is left out."""

_VARIABLE: Final = "WORMHOLE_LOG"
# A password in a URL, and the token of the admin service. A message may hold a peer's text: repetitions are bounded,
# so that time grows with its length alone.
_SECRETS: Final = (
    (re.compile(r"(?<=[a-z0-9]://)([^\s:/@]{0,256}:)[^\s@]{1,256}@"), r"\1***@"),
    (re.compile(r"(?i)(\bbearer\s{1,9})\S+"), r"\1***"),
)
_COLOURS: Final = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31;1"}
_bound: ContextVar[Mapping[str, str]] = ContextVar("bound", default={})  # noqa: B039 - never changed, only replaced


def configure(level: str = "info", json: bool | None = None) -> None:
    """Log from ``level`` on to standard error.

    ``json``: whether as JSON; ``None``: as the variable ``WORMHOLE_LOG`` determines (``json`` or ``text``), else as
    JSON unless standard error is a terminal. Replaces an earlier configuration. Raises
    :class:`~wormhole.model.errors.ConfigError` for another word in ``WORMHOLE_LOG``.
    """
    terminal = sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _Json() if (_wants_json(people=terminal) if json is None else json) else TextFormatter(terminal)
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def configure_if_unset(logger: logging.Logger) -> None:
    """Log from INFO on to standard error, if neither ``logger`` nor the root has a handler yet.

    The lines are for people, unless ``WORMHOLE_LOG=json``. Nothing else of the process is changed. Raises
    :class:`~wormhole.model.errors.ConfigError` for another word in ``WORMHOLE_LOG``.
    """
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if _wants_json(people=True) else TextFormatter(sys.stderr.isatty()))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _log_uncaught(kind: type[BaseException], error: BaseException | None, at: TracebackType | None) -> None:
    """Log an uncaught error, instead of Python's own printing, which shows an error's text unchanged."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error or kind(), at)
        return
    logging.getLogger("wormhole").critical("an error was not caught", exc_info=(kind, error or kind(), at))


def bind(**fields: str) -> None:
    """Add these :data:`FIELDS` to every line that the calling task, and every task that it starts, logs from now on."""
    _bound.set({**_bound.get(), **fields})


def _wants_json(*, people: bool) -> bool:
    """Whether to log as JSON. ``people``: whether people are expected to read it, if the variable is not set."""
    asked = os.environ.get(_VARIABLE, "")
    if asked not in {"", "json", "text"}:
        raise ConfigError(f"{_VARIABLE} = {asked!r}: allowed are json and text", hint="or leave it unset")
    return asked == "json" or (not asked and not people)


class _Json(logging.Formatter):
    """One object a line: time, level, logger and message first, then the line's fields, then a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "at": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            # On the terminal of one publisher a line need not name it; a collector of many publishers needs it.
            **_bound.get(),
            **{name: vars(record)[name] for name in FIELDS if name in vars(record)},
            **({"code": code} if (code := _code_in(record)) else {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        shown = {name: _redacted(value) if isinstance(value, str) else value for name, value in line.items()}
        return visible_json(json.dumps(shown, ensure_ascii=False, default=str))


def _code_in(record: logging.LogRecord) -> str:
    """The code of the line's error or problem; empty: it has none. In a line of text the code is in the message."""
    about = [*record.args] if isinstance(record.args, tuple) else []
    if record.exc_info:
        about.append(record.exc_info[1])
    return next((one.code for one in about if isinstance(one, (Problem, WormholeError))), "")


class TextFormatter(logging.Formatter):
    """A line for people. The message names its subject, so the fields would repeat it.

    ``colours``: colour the level of warnings and errors, as on a terminal.
    """

    def __init__(self, colours: bool) -> None:
        super().__init__()
        self._colours = _COLOURS if colours else {}

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created)
        level, colour = f"[{record.levelname.lower():<9}]", self._colours.get(record.levelno)
        if colour is not None:
            level = f"\x1b[{colour}m{level}\x1b[0m"
        text = (
            f"{at:%Y-%m-%d %H:%M:%S} {level} {visible_lines(_redacted(record.getMessage()))} [{visible(record.name)}]"
        )
        if record.exc_info:
            text += f"\n{visible_lines(_redacted(self.formatException(record.exc_info)))}"
        return text


def _redacted(text: str) -> str:
    """The text without secrets. This is the second line of defence: the product logs no secret, but a library's error
    text may quote a URL.
    """
    for secret, shown in _SECRETS:
        text = secret.sub(shown, text)
    return text
