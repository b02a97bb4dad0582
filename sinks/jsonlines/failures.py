"""What an error of the operating system means for a sink."""

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
    """The error of the port: refused where the same call cannot succeed before an operator has changed something, and
    unavailable otherwise. A folder that is missing may be on a file system that is mounted later.
    """
    hint = _HINTS.get(error.errno or 0, _USUAL_HINT)
    kind = TargetRefused if error.errno in _OPERATOR else TargetUnavailable
    return kind(f"{where} cannot be written: {error.strerror or error}", hint=hint)
