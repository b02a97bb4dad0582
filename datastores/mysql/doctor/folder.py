"""The doctor's finding about a folder of binlog files: which files it has, and whether they adjoin the server's log."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.files.names import file_number
from datastores.mysql.files.packets import read_head
from datastores.mysql.log.folder import BinlogFolder
from datastores.mysql.log.folder_log import FolderLog
from datastores.mysql.server.state import ServerState, StateQueries
from wormhole.model.errors import DecodeError
from wormhole.model.findings import Finding, Severity

__all__ = ["finding"]

_CHECK: Final = "binlog_folder"
_UNREAD: Final = "a flow that needs what the server purged reports a data loss"
_FILL: Final = "fill the folder before the server purges (docs/mysql.md, A folder of binlog files)"


def finding(connection: Connection[Any], queries: StateQueries, path: Path) -> Finding:
    """The finding on the folder at ``path``. Reads the last of its files. Raises as the queries do."""
    folder = BinlogFolder(path, mariadb=queries.mariadb)
    own = queries.view(connection)
    view = folder.join(own, {})
    begins = f"the server's log, which begins with {own.name(own.own_first)}"
    if folder.problem and not view.kept:
        return Finding(_CHECK, Severity.WARN, folder.problem.text, _UNREAD, _FILL)
    if not view.kept:
        return _nothing(connection, queries, own, path, begins)
    first, last = view.kept[0], view.kept[-1]
    size = sum(file.size for file in view.kept)
    since = datetime.fromtimestamp(first.began_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    what = f"{path} has {first.path.name} to {last.path.name} ({size >> 20} MiB), begun {since}"
    if why := FolderLog(folder, queries).why_not(last, queries.listed_before(connection, view, own.own_first)):
        return Finding(_CHECK, Severity.PROBLEM, f"{what}, which do not adjoin {begins}: {why}", _UNREAD, _FILL)
    if folder.problem:
        before = f"{what}; nothing before them is read: {folder.problem.text}"
        return Finding(_CHECK, Severity.WARN, before, _UNREAD, folder.problem.hint)
    return Finding(_CHECK, Severity.OK, f"{what}, which adjoin {begins}")


def _nothing(connection: Connection[Any], queries: StateQueries, own: ServerState, path: Path, begins: str) -> Finding:
    """The finding if the folder has no file from before the server's log."""
    pattern = re.compile(rf"{re.escape(own.base)}\.\d{{6,10}}")
    numbers = sorted(file_number(file.name) for file in path.iterdir() if pattern.fullmatch(file.name))
    if not numbers:
        return Finding(_CHECK, Severity.WARN, f"{path} has no file {own.base}.NNNNNN", _UNREAD, _FILL)
    has = f"{path} has {own.name(numbers[0])} to {own.name(numbers[-1])}"
    if own.own_size(numbers[0]) is None:
        missing = f"{has}, and {own.name(own.own_first - 1)} is missing, which is right before {begins}"
        return Finding(_CHECK, Severity.WARN, missing, _UNREAD, _FILL)
    try:
        head = read_head(path / own.name(numbers[0]))
    except (DecodeError, OSError) as error:
        why = error.message if isinstance(error, DecodeError) else str(error)
        return Finding(_CHECK, Severity.WARN, f"{path / own.name(numbers[0])}: {why}", _UNREAD, _FILL)
    if (head.server_id, head.gtids) != (own.server_id, queries.listed_before(connection, own, numbers[0])):
        other = f"{has}, of which the first is another file than the server's own"
        return Finding(_CHECK, Severity.PROBLEM, other, _UNREAD, _FILL)
    return Finding(_CHECK, Severity.OK, f"{has}, which the server has still")
