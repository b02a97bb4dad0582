"""The open sink of Redis, which writes to one database of a server."""

from __future__ import annotations

from typing import Any, Final

from sinks.port import Sink
from sinks.records import RecordSubscriber
from sinks.redis.invalidate import InvalidatingSubscriber
from sinks.redis.keys import Keys
from sinks.redis.rows import RowSubscriber, RowWriter, evicting
from sinks.redis.settings import RedisSettings
from sinks.redis.store import Store
from subscriber_sdk import Subscriber
from wormhole.host.tls import is_loopback
from wormhole.model.errors import TargetRefused
from wormhole.model.findings import Report, Severity
from wormhole.model.units import rounded_size

__all__ = ["RedisSink"]

_RIGHTS: Final = """
if not redis.acl_check_cmd then return {} end
local own = ARGV[2]
local commands = {{'HMGET', own, 'a'}, {'HSET', own, 'a', 'b'}}
if ARGV[1] == 'set' then
  local more = {{'HGET', own, 'a'}, {'HGETALL', own}, {'HSCAN', own, '0'}, {'HSETNX', own, 'a', 'b'},
    {'HDEL', own, 'a'}, {'ZADD', own, '0', 'a'}, {'ZREM', own, 'a'}, {'ZRANGEBYSCORE', own, '0', '1'}, {'TIME'}}
  for _, command in ipairs(more) do table.insert(commands, command) end
else
  table.insert(commands, {'SCAN', '0'})
end
for i = 2, #ARGV do
  table.insert(commands, {'UNLINK', ARGV[i]})
  if ARGV[1] == 'set' then
    table.insert(commands, {'MGET', ARGV[i]})
    table.insert(commands, {'MSET', ARGV[i], 'a'})
  end
end
local refused = {}
for _, command in ipairs(commands) do
  if not redis.acl_check_cmd(unpack(command)) then
    table.insert(refused, #command > 1 and command[1] .. ' ' .. command[2] or command[1])
  end
end
return refused
"""


class RedisSink(Sink):
    """See the port."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._store = Store(settings)
        keys = Keys(settings.key, settings.keys)
        self._subscriber: RecordSubscriber
        if settings.mode == "delete":
            self._subscriber = InvalidatingSubscriber(keys, self._store, settings.form, settings.budget)
        else:
            writer = RowWriter(self._store, keys, settings.form, settings.remember_deleted)
            self._subscriber = RowSubscriber(keys, writer, settings.budget)
        self.figures = self._subscriber.figures

    @property
    def subscriber(self) -> Subscriber:
        return self._subscriber

    async def examine(self) -> Report:
        report = Report(self._settings.url)
        try:
            await self._examine(report)
        except TargetRefused as refused:
            report.add("target_server", Severity.PROBLEM, refused.message, "", refused.hint or "", refused.code)
        return report

    async def close(self) -> None:
        await self._store.close()

    async def _examine(self, report: Report) -> None:
        (info,) = await self._store.run(("INFO",))
        name, version = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", _version(info))
        report.facts |= {
            "server": f"{name} {version}",
            "memory": rounded_size(int(info.get("used_memory", 0))),
            "keys": str(info.get(f"db{self._settings.database}", {}).get("keys", 0)),
        }
        where = self._store.where
        if info.get("cluster_enabled"):
            report.add(
                "target_server",
                Severity.PROBLEM,
                f"{where} is a cluster",
                because="a sink's script changes keys that are in several slots",
                next_step="use a server that is not a cluster",
                code="target-refused",
            )
        elif info.get("role") != "master":
            report.add(
                "target_server",
                Severity.PROBLEM,
                f"{where} is a replica, which takes no writes",
                next_step="name the primary server in the URL",
                code="target-refused",
            )
        else:
            report.add("target_server", Severity.OK, f"{where} is {name} {version}, and takes writes")
        if not self._settings.tls and not is_loopback(self._settings.host):
            report.add(
                "target_tls",
                Severity.WARN,
                f"the connections to {where} are not encrypted",
                because="everyone on the network can read the password and the keys, and change them",
                next_step="write rediss:// where the server has TLS",
                code="target-refused",
            )
        if self._settings.mode == "set" and (policy := evicting(info)) is not None:
            report.add(
                "target_memory",
                Severity.PROBLEM,
                f"{where} removes keys when its memory is full (maxmemory-policy {policy})",
                because="rows would be missing without a message",
                next_step='set maxmemory-policy to noeviction, or write mode = "delete"',
                code="target-refused",
            )
        await self._examine_rights(report)

    async def _examine_rights(self, report: Report) -> None:
        templates = (self._settings.key, *self._settings.keys.values())
        # The names of tables are not known here.
        keys = [template.format(key="1") for template in templates if template.count("{") == 1]
        (refused,) = await self._store.run(("EVAL", _RIGHTS, 0, self._settings.mode, "wormhole:flow:", *keys))
        if refused:
            commands = ", ".join(command.decode() for command in refused)
            report.add(
                "target_rights",
                Severity.PROBLEM,
                f"the account may not run {commands}",
                because="every flow of the sink would halt",
                next_step="give the account these commands, for the keys wormhole:* and those of the templates",
                code="account-lacks-rights",
            )
        else:
            report.add("target_rights", Severity.OK, "the account may do what the sink needs")


def _version(info: dict[str, Any]) -> str:
    return str(info.get("redis_version", "of an unknown version"))
