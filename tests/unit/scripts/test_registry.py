"""From pip to uv: the settings of this machine, and the lock file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.prepare import LOCK, ROOT, TOOLS
from scripts.registry import locked, uv_environment

LOCKED = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    ("pip_config", "expected"),
    [
        ("", {}),
        ("global.index-url='https://one.example/simple'\n", {"UV_DEFAULT_INDEX": "https://one.example/simple"}),
        (
            "global.extra-index-url='https://two.example\\nhttps://three.example'\n",
            {"UV_INDEX": "https://two.example https://three.example", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
        (
            "global.cert='/etc/one.pem'\nglobal.client-cert='/two'",
            {"SSL_CERT_FILE": "/etc/one.pem", "SSL_CLIENT_CERT": "/two"},
        ),
        (":env:.default-timeout='180'\n", {"UV_HTTP_TIMEOUT": "180"}),
        ("global.trusted-host='a.example b.example'", {"UV_INSECURE_HOST": "a.example b.example"}),
        ("global.proxy='http://p.example:3128'", {"ALL_PROXY": "http://p.example:3128"}),
        (
            "global.find-links='https://files.example /no/such/folder /usr'",
            {"UV_FIND_LINKS": "https://files.example,/usr"},
        ),
        ("global.disable-pip-version-check='1'\nfreeze.timeout='10'\nWARNING: noise\n", {}),
    ],
)
def test_uv_gets_the_settings_of_pip(pip_config: str, expected: dict[str, str]) -> None:
    assert uv_environment(pip_config, {}) == expected


def test_the_environment_wins_over_a_section_and_that_over_the_global_one() -> None:
    config = {"global": "global.cert='/g'", "install": "install.cert='/i'", "env": ":env:.cert='/e'"}

    def cert(*sections: str) -> str:
        return uv_environment("\n".join(config[section] for section in sections), {})["SSL_CERT_FILE"]

    assert cert("install", "global") == "/i"
    assert cert("env", "global", "install") == "/e"


def test_what_is_set_for_uv_stays_and_so_does_the_rest_of_the_environment() -> None:
    given = {"UV_DEFAULT_INDEX": "https://mine.example", "HOME": "/home/me"}
    assert uv_environment("global.index-url='https://pip.example'", given) == given


def test_one_package_of_the_lock_has_its_version_and_its_hashes() -> None:
    text = (
        "# made by uv\nuv-build==9 \\\n    --hash=sha256:cc\nuv==1.2 ; x == 'y' \\\n    --hash=sha256:aa \\\n    "
        "--hash=sha256:bb\nz==1\n"
    )
    assert locked("uv", text) == "uv==1.2 ; x == 'y' \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    with pytest.raises(ValueError, match="has no z"):
        locked("z", text)  # a version without a hash


def wanted() -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    yield from map(Requirement, project["build-system"]["requires"])
    yield from map(Requirement, project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        yield from map(Requirement, extra)


def test_the_lock_holds_a_version_of_every_package_that_pyproject_accepts() -> None:
    wrong = [str(one) for one in wanted() if LOCKED.get(canonicalize_name(one.name), "none") not in one.specifier]
    assert wrong == [], "`make lock` writes it anew"
    assert set(TOOLS) <= set(LOCKED)


def test_every_package_of_the_lock_has_hashes_and_none_names_a_registry() -> None:
    text = LOCK.read_text()
    assert LOCKED
    assert all(locked(name, text) for name in LOCKED)
    assert "://" not in text
    assert str(Path.home()) not in text
