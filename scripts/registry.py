"""Translates this machine's pip configuration for uv, and reads packages from the lock file.

pip is on every machine with Python, so a machine that reaches a registry of its own has configured pip for it. uv reads
none of pip's settings. Standard library only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["locked", "uv_environment"]

# A setting of pip, the variable in which uv looks for it, and what stands between two values.
_SETTINGS = (
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("default-timeout", "UV_HTTP_TIMEOUT", " "),
    ("timeout", "UV_HTTP_TIMEOUT", " "),
    ("proxy", "ALL_PROXY", " "),
    ("client-cert", "SSL_CLIENT_CERT", " "),
    ("cert", "SSL_CERT_FILE", " "),
)
_SECTIONS = ("global", "install", ":env:")  # the later one wins, as in pip
_LINE = re.compile(r"(global|install|:env:)\.([a-z-]+)=(.+)")


def uv_environment(pip_config: str, environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` with the settings of ``pip config list`` as uv takes them; what is set for uv already stays."""
    found: dict[tuple[str, str], str] = {}
    for line in pip_config.splitlines():
        if match := _LINE.fullmatch(line):
            found[match[1], match[2]] = str(ast.literal_eval(match[3]))
    settings: dict[str, str] = {}
    for section in _SECTIONS:
        for name, variable, separator in _SETTINGS:
            values = found.get((section, name), "").split()
            if name == "find-links":
                # pip passes over a folder that is not there, uv stops.
                values = [value for value in values if "://" in value or Path(value).is_dir()]
            if values:
                settings[variable] = separator.join(values)
    if "UV_INDEX" in settings:
        # pip takes a version from whichever index has it. The hashes say which file it is.
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {**settings, **environment}


def locked(package: str, lock: str) -> str:
    """The entry of ``package`` in the text of the lock file: its version and hashes."""
    entry = re.search(rf"^{re.escape(package)}==.*(?:\n +--hash=.*)+", lock, re.MULTILINE)
    if entry is None:
        raise ValueError(f"the lock file has no {package}")
    return entry[0] + "\n"
