"""The datastore port for HDFS: its URL, options, checks and constructors. Imports no module that reads the log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from datastores.hdfs.url import FORM, Address
from wormhole.model.capabilities import Capabilities
from wormhole.model.findings import Report
from wormhole.model.values import Op
from wormhole.ports.datastore import Datastore, Login, SourceOptions
from wormhole.ports.log_source import LogSource

__all__ = ["DATASTORE"]


class HdfsDatastore(Datastore):
    """See the port."""

    requirement = "wormhole-pubsub[publisher,hdfs-log]"
    capabilities = Capabilities(title="HDFS", row_before=False, ops=(Op.UPSERT, Op.UPDATE, Op.DELETE, Op.DELETE_RANGE))
    refuses: ClassVar[Mapping[str, str]] = {
        "password_file": "a NameNode has no password; `principal` and `keytab` in the URL are for Kerberos",
        "pin_folder": "the NameNode keeps its edits by settings of its own",
        "binlog_folder": "the NameNode keeps its edits by settings of its own",
        "server_ids": "a NameNode does not count its readers",
        "skip_tables": "filters leave folders out",
        "history_tables": "HDFS has no system-versioned tables",
    }
    table_words = ("folder", "folders")

    def form(self, scheme: str) -> str:
        return FORM

    def check_url(self, url: str, *, configured: bool = False) -> None:
        Address.parse(url)

    def open(self, url: str, options: SourceOptions) -> LogSource:
        from datastores.hdfs.source import HdfsSource

        return HdfsSource(Address.parse(url), options)

    def examine(self, url: str, state_dir: Path, login: Login) -> Report:
        from datastores.hdfs.doctor import check

        return check(url)

    def is_place(self, text: str) -> bool:
        return text.isascii() and text.isdecimal()

    def name_in(self, url: str) -> str:
        return "files"


DATASTORE = HdfsDatastore()
