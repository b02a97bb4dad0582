"""The port :class:`~wormhole.ports.datastore.Datastore` for a file of JSON lines: ``jsonlines:///absolute/path``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from wormhole.model.capabilities import Capabilities
from wormhole.model.findings import Report, Severity
from wormhole.model.values import Op
from wormhole.ports.datastore import Datastore, Login, SourceOptions
from wormhole.ports.log_source import LogSource

__all__ = ["DATASTORE"]


class JsonLinesDatastore(Datastore):
    """See the port. Keys and values are texts, which are delivered as bytes."""

    requirement = "wormhole-jsonlines"
    capabilities = Capabilities(title="JSON lines", of_bytes=True, row_before=False, ops=(Op.UPSERT, Op.DELETE))
    one_host = "its log is a file, which is on one host"
    refuses: ClassVar[Mapping[str, str]] = {
        "password_file": "a file has no password",
        "pin_folder": "nothing deletes its lines",
        "binlog_folder": "nothing deletes its lines",
        "server_ids": "a file is not asked over a network",
        "skip_tables": "filters leave tables out",
        "history_tables": "a file has no system-versioned tables",
    }

    def form(self, scheme: str) -> str:
        return f"{scheme}:///absolute/path"

    def check_url(self, url: str, *, configured: bool = False) -> None:
        parts = urlsplit(url)
        if parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise ValueError(f"must be {self.form(parts.scheme)}, with three slashes and nothing behind the path")

    def open(self, url: str, options: SourceOptions) -> LogSource:
        from wormhole_jsonlines.source import JsonLinesSource

        return JsonLinesSource(_path(url), options.log, options.sharding)

    def examine(self, url: str, state_dir: Path, login: Login) -> Report:
        from wormhole_jsonlines.lines import File

        report = Report(url, {"path": str(_path(url))})
        with File(_path(url)) as file:
            count = sum(1 for _ in file.lines(file.begin))
        report.add("lines", Severity.OK, f"{count} whole lines can be read")
        return report


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


DATASTORE = JsonLinesDatastore()
