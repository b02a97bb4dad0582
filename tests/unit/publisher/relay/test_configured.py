"""What a relay is opened with, from a configuration."""

from __future__ import annotations

from pathlib import Path

from publisher.relay.configured import ConfiguredRelay, configured_relay, left_relay
from publisher.relay.settings import RelayIdentity, RelaySettings
from tests.support.present import present
from wormhole.config import parse

HERE = Path("/srv")


def opened_with(*settings: str, source: str = "postgres://w@db/shop") -> ConfiguredRelay | None:
    head = ["version = 1", "[publisher]", 'state_dir = "state"', "[datasets.shop.copies.main.logs.db1]"]
    text = "\n".join([*head, f'source = "{source}"', *settings])
    return configured_relay(parse(text, "site.toml", folder=HERE), "shop", "main", "db1")


def test_the_defaults() -> None:
    assert opened_with() == (
        HERE / "state/shop/main/db1/relay",
        RelayIdentity("shop/main/db1", "postgres", "log", 64 << 20, ""),
        RelaySettings("hold", 8 << 30, 1 << 30, "lose", True),
    )
    assert opened_with(source="mysql://w@db") is None


def test_what_is_configured() -> None:
    settings = ['slot_budget = "2GiB"', 'on_relay_full = "keep_slot"', 'relay_compression = "none"']
    found = present(opened_with(*settings, 'relay_budget = "1GiB"', 'relay_folder = "disk"'))
    assert (found.folder, found.settings) == (
        HERE / "disk",
        RelaySettings("hold", 1 << 30, 2 << 30, "keep_slot", False),
    )
    cached = present(opened_with('relay = "cache"', source="mysql://w@db"))
    assert cached.settings == RelaySettings("cache", 8 << 30)


def test_what_a_relay_left_that_was_turned_off(tmp_path: Path) -> None:
    text = 'version = 1\n[datasets.shop.copies.main.logs.db1]\nsource = "postgres://w@db/shop"\n'
    config = parse(f'{text}relay = "off"\nrelay_folder = "{tmp_path}/relay"', "site.toml", folder=HERE)
    assert left_relay(config, "shop", "main", "db1") is None
    (tmp_path / "relay").mkdir()
    assert left_relay(config, "shop", "main", "db1") is None
    (tmp_path / "relay" / "relay-00000000000000000007.wrf").write_bytes(b"x")
    found = present(left_relay(config, "shop", "main", "db1"))
    assert (found.settings.mode, found.settings.budget) == ("off", 8 << 30)
    assert configured_relay(config, "shop", "main", "db1") is None
