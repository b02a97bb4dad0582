"""Configuration that another writer wrote: whatever is in it, a command answers with one message, and nothing large
is read or built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.command_line import run
from wormhole.config import load
from wormhole.model.errors import ConfigError

HEAD = "version = 1\n"

HOSTILE = {
    "5,000 digits": f"{HEAD}[publisher]\nmemory_budget = {'9' * 5000}\n",
    "5,000 hexadecimal digits": f"{HEAD}[publisher]\nmemory_budget = 0x{'f' * 5000}\n",
    "5,000 digits within a list": f"{HEAD}x = [1, {'9' * 5000}]\n",
    "100,000 lists": f"{HEAD}x = {'[' * 100_000}",
    "3,000 closed lists": f"{HEAD}x = {'[' * 3000}{']' * 3000}\n",
    "3,000 inline tables": f"{HEAD}x = {'{a = ' * 3000}1{'}' * 3000}\n",
    "a heading of 3,000 tables": f"{HEAD}[{'.'.join('a' * 3000)}]\nx = 1\n",
    "a float without end": f"{HEAD}[publisher]\nheartbeat = 1e99999\n",
    "not a number": f"{HEAD}[publisher]\nheartbeat = nan\n",
    "control characters": f'{HEAD}[publisher]\nmarkers = "\\u001b]0;x\\u0007"\n',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_toml_is_one_short_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "shop.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    said = str(caught.value)
    assert said.startswith(str(path))
    assert len(said) < 4000
    code, out, err = run("config", "check", str(path))
    assert code == 2
    assert "Traceback" not in out + err
    assert "\x1b]" not in out + err


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, f'{{"version": {"9" * 5000}}}', '{"a":' * 100_000, '{"version": NaN}', '{"version": 1e999}', "[]"],
    ids=["lists", "digits", "objects", "nan", "infinite", "no object"],
)
def test_json_is_one_short_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "shop.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert len(str(caught.value)) < 4000


@pytest.mark.parametrize("name", ["endless.toml", "endless.json"])
def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="is larger than 4 MiB"):
        load(path)


def test_a_device_or_a_secret_is_no_certificate(tmp_path: Path) -> None:
    """The author of a file chooses the paths in it; what they lead to is read within a bound and not shown."""
    tls = Authority(tmp_path / "tls").issue("db1")
    secret = tmp_path / "secret"
    secret.write_text("root:$6$verysecret:19000::::::\n")
    path = tmp_path / "shop.toml"
    for wrong in ("/dev/zero", str(secret)):
        path.write_text(f'{HEAD}[tls]\ncert = "{wrong}"\nkey = "{tls.key}"\nca = "{tls.ca}"\n')
        _, out, err = run("config", "check", str(path), "--json")
        (fault,) = json.loads(out)["certificates"]["faults"]
        assert f'tls.cert = "{wrong}"' in fault
        assert "verysecret" not in out + err
