"""The configuration file, as TOML and as JSON: settings that are written and read as the same, or one ConfigError."""

from __future__ import annotations

import random
from types import ModuleType

from tests.fuzz.mutate_text import mutate_json, mutate_toml
from tests.fuzz.target import Target
from wormhole.config import config_to_json, parse
from wormhole.model.errors import ConfigError

_PARTS = (
    '[coordinator]\nzookeeper = "zk1:2181,zk2:2181/root"\nsession_timeout = "10s"\nauth_file = "zk.auth"\n',
    '[tls]\ncert = "c.pem"\nkey = "k.pem"\nca = "ca.pem"\n',
    '[publisher]\nmemory_budget = "512MiB"\nmax_frame = "1MiB"\nstate_dir = "/var/lib/w"\nadmins = ["ann"]\n',
    '[monitor]\nlisten = "127.0.0.1:7480"\nhost = "db-7"\nstop_timeout = "30s"\n[monitor.restart]\ncrashes = 5\n',
    '[applications.cache]\ndataset = "shop"\nstart = "latest"\ntables = ["shop.*"]\nwhere = "op == \\"delete\\""\n',
    (
        '[applications.audit]\ndataset = "shop"\nstart = "earliest"\nallow = ["billing"]\non_failure = "park"\n'
        '[applications.audit.retry]\nfirst_wait = "100ms"\nlongest_wait = "1m"\n'
    ),
    (
        '[datasets.shop.archive]\nto = "s3://bucket/folder?region=eu"\n[applications.archive]\ndataset = "shop"\n'
        'start = "earliest"\n'
    ),
)
_SOURCE = (
    (
        '[datasets.shop.copies.main.logs.db]\nsource = "mysql://w@db:3306"\npassword_file = "p"\nhost = "db-7"\n'
        'server_ids = "4001-4016"\nskip_tables = ["a.b"]\n[datasets.shop.caravans]\nmax = 3\nmax_read_rate = '
        '"20MiB/s"\n'
    ),
    (
        '[datasets.shop.copies.main.logs.kv]\nsource = "rocksdb:///var/lib/kv"\npin_budget = "4GiB"\n'
        '[datasets.shop.values]\ndefault = "json"\n'
    ),
)


def _toml(rng: random.Random) -> bytes:
    while True:
        parts = [part for part in _PARTS if rng.random() < 0.5]
        text = "".join(["version = 1\n", rng.choice(_SOURCE), *parts])
        try:
            parse(text, "made")
        except ConfigError:
            continue
        return text.encode()


def _json(rng: random.Random) -> bytes:
    return config_to_json(parse(_toml(rng).decode(), "made")).encode()


def _read_toml(module: ModuleType, data: bytes) -> object:
    return _stored(module, module.parse(data.decode("utf-8", "replace"), "x.toml"))


def _read_json(module: ModuleType, data: bytes) -> object:
    return _stored(module, module.parse_json(data.decode("utf-8", "replace"), "x.json"))


def _stored(module: ModuleType, config: object) -> object:
    text = module.config_to_json(config)
    if module.config_to_json(module.parse_json(text, "again")) != text:
        raise AssertionError("the configuration reads as another one")
    return None


TARGETS = [
    Target(
        name="configuration-toml",
        module="wormhole.config.load",
        decode=_read_toml,
        make=_toml,
        allowed=(ConfigError,),
        mutate=mutate_toml,
    ),
    Target(
        name="configuration-json",
        module="wormhole.config.load",
        decode=_read_json,
        make=_json,
        allowed=(ConfigError,),
        mutate=mutate_json,
    ),
]
