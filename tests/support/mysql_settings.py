"""Settings of a server as it should be, for tests of what is said about one that is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from datastores.mysql.server.settings import BinaryLog, Grant, LogPlace, Settings

_COMMON: Final = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_checksum": "CRC32",
    "sync_binlog": "1",
    "innodb_flush_log_at_trx_commit": "1",
    "binlog_expire_logs_seconds": "2592000",
    "max_allowed_packet": "67108864",
    "time_zone": "SYSTEM",
    "system_time_zone": "UTC",
    "basedir": "/usr/",
}

MYSQL: Final = Settings(
    flavour="mysql",
    version=(8, 4, 3),
    version_text="8.4.3",
    variables={
        **_COMMON,
        "gtid_mode": "ON",
        "binlog_row_value_options": "",
        "log_replica_updates": "ON",
        "binlog_expire_logs_auto_purge": "ON",
    },
    server_uuid="3e11fa47-71ca-11e1-9e33-c80aa9429562",
    server_id=1,
    gtid_executed="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5",
    place=LogPlace("binlog.000002", 157),
    logs=(BinaryLog("binlog.000001", 3 << 20), BinaryLog("binlog.000002", 157)),
    grants=(Grant(frozenset({"REPLICATION SLAVE", "REPLICATION CLIENT", "SELECT"}), "*.*"),),
    account="wormhole@%",
    tls="TLS_AES_256_GCM_SHA384",
)
"""A MySQL about which there is nothing to say but what can never be seen."""

MARIADB: Final = Settings(
    flavour="mariadb",
    version=(10, 11, 6),
    version_text="10.11.6-MariaDB-log",
    variables={**_COMMON, "gtid_strict_mode": "ON", "log_slave_updates": "ON", "wsrep_on": "OFF"},
    server_id=1,
    gtid_binlog_pos="0-1-5",
    gtid_binlog_state="0-1-5",
    place=LogPlace("binlog.000002", 157),
    logs=(BinaryLog("binlog.000001", 3 << 20), BinaryLog("binlog.000002", 157)),
    grants=(Grant(frozenset({"REPLICATION SLAVE", "BINLOG MONITOR", "SLAVE MONITOR", "SELECT"}), "*.*"),),
    account="wormhole@%",
    tls="TLS_AES_256_GCM_SHA384",
)
"""The same of MariaDB."""


def changed(settings: Settings, *removed: str, variables: dict[str, str] | None = None, **fields: Any) -> Settings:
    """The settings with other values of ``variables``, without those ``removed``, and with other ``fields``."""
    kept = {name: value for name, value in settings.variables.items() if name not in removed}
    return replace(settings, variables={**kept, **(variables or {})}, **fields)
