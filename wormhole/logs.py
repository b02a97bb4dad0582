"""How processes of ours log: for people on a terminal, one JSON object a line everywhere else.

Modules log with the standard library's ``logging`` and name what a line is about in ``extra`` (:data:`FIELDS`); only commands and
daemons import this module, so that an application that receives updates needs nothing of it.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import Any, Final

import structlog
from structlog.typing import EventDict, Processor

from wormhole.errors import ConfigError

__all__ = ["FIELDS", "bind", "configure"]

FIELDS: Final = ("dataset", "copy", "log", "host", "shard", "flow", "place", "epoch", "subscriber", "publisher")
"""What a line may name beside its message; anything else given as ``extra`` is left out."""

_VARIABLE: Final = "WORMHOLE_LOG"
# A password in a URL, and the token of the admin service.
_SECRETS: Final = (
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s@]+@"), r"\1***@"),
    (re.compile(r"(?i)(\bbearer\s+)\S+"), r"\1***"),
)


def configure(level: str = "info", json: bool | None = None) -> None:
    """Log from ``level`` on to standard error. ``json``: whether as JSON; ``None``: as ``WORMHOLE_LOG`` says (``json`` or ``text``),
    else unless standard error is a terminal.

    Replaces what was configured before. Raises :class:`~wormhole.errors.ConfigError` for another word in ``WORMHOLE_LOG``.
    """
    terminal = sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(_wants_json(terminal) if json is None else json, terminal))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


def bind(**fields: str) -> None:
    """Name these :data:`FIELDS` in every line that the calling task, and whatever it starts, logs from now on."""
    structlog.contextvars.bind_contextvars(**fields)


def _wants_json(terminal: bool) -> bool:
    asked = os.environ.get(_VARIABLE, "")
    if asked not in {"", "json", "text"}:
        raise ConfigError(f"{_VARIABLE} = {asked!r}: allowed are json and text", hint="or leave it unset")
    return asked == "json" or (not asked and not terminal)


def _formatter(json: bool, terminal: bool) -> logging.Formatter:
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(FIELDS),
    ]
    if json:
        # The terminal of one publisher need not say on every line which one it is; a collector of many has to know.
        shared.append(structlog.contextvars.merge_contextvars)
        rendering: list[Processor] = [
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            _redact,
            _in_order,
            structlog.processors.JSONRenderer(sort_keys=False, ensure_ascii=False),
        ]
    else:
        rendering = [
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.processors.format_exc_info,
            _for_people,
            _redact,
            structlog.dev.ConsoleRenderer(
                colors=terminal, pad_event_to=0, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering], foreign_pre_chain=shared
    )


def _redact(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """The second line of defence: nobody should log a secret, and a library's error text may quote a URL."""
    for key, value in event.items():
        if isinstance(value, str):
            for secret, shown in _SECRETS:
                value = secret.sub(shown, value)
            event[key] = value
    return event


def _in_order(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """The time first, the message before the fields."""
    first = {key: event.pop(key) for key in ("at", "level", "logger", "message") if key in event}
    return {**first, **event}


def _for_people(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """The message names what it is about; the fields would say it twice."""
    return {key: value for key, value in event.items() if key not in FIELDS}
