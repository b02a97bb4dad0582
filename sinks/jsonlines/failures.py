"""Turns an error of the operating system into an error of the port: the sink retries, or an operator has to act."""

from __future__ import annotations

import errno
from typing import Final

from wormhole.model.errors import TargetRefused, TargetUnavailable

__all__ = ["target_error"]

_OPERATOR: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EPIPE}
_HINTS: Final = {
    errno.ENOENT: "make the folder, or mount the file system that has it; the sink continues by itself",
    errno.ENOSPC: "make room on that file system; the sink continues by itself",
    errno.EDQUOT: "raise the quota, or delete files; the sink continues by itself",
    errno.EPIPE: "start the sink again together with what reads its output",
}
_USUAL_HINT: Final = "correct the folder or its permissions"


def target_error(where: str, error: OSError) -> TargetUnavailable | TargetRefused:
    """The error of the port: refused if the call cannot succeed before an operator has changed something, or else
    unavailable. A missing folder is unavailable, because its file system may be mounted later.
    """
    hint = _HINTS.get(error.errno or 0, _USUAL_HINT)
    kind = TargetRefused if error.errno in _OPERATOR else TargetUnavailable
    return kind(f"{where} cannot be written: {error.strerror or error}", hint=hint)
