"""How a failed callback is logged: with the application's line that failed, and without the SDK's stack frames."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

import wormhole
from wormhole.model.errors import DecodeError, ProtocolError, WormholeError
from wormhole.ports.dead_letters import row_text
from wormhole.wire.bounds import shortened
from wormhole.wire.update import Update

__all__ = ["LoggedError", "change_of", "headline", "logged_error"]

LoggedError = tuple[type[BaseException], BaseException, TracebackType | None]
"""An exception as ``logging`` takes it (``exc_info``)."""

_LONGEST_MESSAGE: Final = 500
_LONGEST_ROW: Final = 200


def _folder(path: str | Path) -> str:
    return f"{path}{os.sep}"


_SDK: Final = (_folder(Path(__file__).parents[1]), _folder(Path(wormhole.__file__).parent))
_INSTALLED: Final = (_folder(sysconfig.get_path("purelib")), _folder(sysconfig.get_path("platlib")))
_STANDARD: Final = (_folder(sysconfig.get_path("stdlib")), "<frozen ")


def logged_error(error: BaseException) -> LoggedError:
    """The exception for ``exc_info``, with its traceback from the application's first frame on.

    A traceback without such a frame shows a fault of the SDK. It is kept whole, unless the message explains the error.
    """
    own = _own_frames(error)
    if own is None and not isinstance(error, (WormholeError, TimeoutError)):
        own = error.__traceback__
    return type(error), error, own


def headline(error: BaseException) -> str:
    """The application's last stack frame and the exception: ``/srv/shop.py:12 in on_update: KeyError: 'email'``.

    The text is only the exception if there is no such frame, for example if a row could not be read before the
    callback.
    """
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    frames = traceback.extract_tb(_own_frames(error))
    if not frames:
        return shortened(text, _LONGEST_MESSAGE)
    own = [frame for frame in frames if not frame.filename.startswith((*_SDK, *_INSTALLED, *_STANDARD))]
    at = own[-1] if own else frames[0]  # an application may be installed like any library
    return f"{at.filename}:{at.lineno} in {at.name}: {shortened(text, _LONGEST_MESSAGE)}"


def change_of(update: Update) -> str:
    """The change of an update, as operators write it (``insert of shop.users:17``), with names and key, but without
    other values."""
    try:
        return f"{update.op.value} of {shortened(row_text(update.rows()[0]), _LONGEST_ROW)}"
    except (DecodeError, ProtocolError):
        return f"a change of {update.table}"


def _own_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the callback's frame on; ``None``: the traceback has no frame of the application."""
    frame = error.__traceback__
    while frame is not None and _leads_to_callback(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return frame


def _leads_to_callback(file: str) -> bool:
    """Whether the file belongs to the SDK, or to the standard library (its event loop, its threads)."""
    return file.startswith(_SDK) or (file.startswith(_STANDARD) and not file.startswith(_INSTALLED))
