"""Finds YARN, by the configuration that Hadoop's clients read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

__all__ = ["resource_managers"]

_ADDRESS: Final = "yarn.resourcemanager.address"
_HOSTNAME: Final = "yarn.resourcemanager.hostname"
_PORT: Final = 8032
_VARIABLE: Final = re.compile(r"\$\{([^}]+)\}")


def resource_managers(environment: Mapping[str, str]) -> list[str]:
    """``HOST:PORT`` of each resource manager that ``yarn-site.xml`` names.

    Empty if they are not known. Then the error is left to Spark and Hadoop.
    """
    folder = environment.get("YARN_CONF_DIR") or environment.get("HADOOP_CONF_DIR")
    if not folder:
        return []
    try:
        root = ElementTree.parse(Path(folder, "yarn-site.xml")).getroot()  # noqa: S314 - the user's own configuration
    except (OSError, ElementTree.ParseError):
        return []
    given = {one.findtext("name", "").strip(): one.findtext("value", "").strip() for one in root.iter("property")}
    suffixes = [""]
    if given.get("yarn.resourcemanager.ha.enabled", "").lower() == "true":
        suffixes = [f".{one.strip()}" for one in given.get("yarn.resourcemanager.ha.rm-ids", "").split(",")]
    found = []
    for suffix in suffixes:
        host = given.get(_HOSTNAME + suffix, "")
        address = given.get(_ADDRESS + suffix) or (f"{host}:{_PORT}" if host else "")
        address = _VARIABLE.sub(lambda name: given.get(name[1], name[0]), address)
        if address and "$" not in address:
            found.append(address if ":" in address else f"{address}:{_PORT}")
    return found
