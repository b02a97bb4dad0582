from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.spark.yarn import resource_managers


def site(folder: Path, **given: str) -> dict[str, str]:
    lines = [
        f"<property><name>yarn.resourcemanager.{name}</name><value> {value} </value></property>"
        for name, value in given.items()
    ]
    (folder / "yarn-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
    return {"HADOOP_CONF_DIR": str(folder)}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"address": "rm:1"}, ["rm:1"]),
        ({"address": "rm"}, ["rm:8032"]),
        ({"hostname": "rm"}, ["rm:8032"]),
        ({"hostname": "rm", "address": "${yarn.resourcemanager.hostname}:7"}, ["rm:7"]),
        ({"address": "${somewhere.else}:7"}, []),
        ({"address.a": "one:1", "hostname.b": "two", "ha.rm-ids": "a, b", "ha.enabled": "true"}, ["one:1", "two:8032"]),
        ({}, []),
    ],
)
def test_hosts_and_ports_are_those_that_hadoop_s_clients_use(
    tmp_path: Path, given: dict[str, str], found: list[str]
) -> None:
    assert resource_managers(site(tmp_path, **given)) == found


def test_without_a_configuration_nothing_is_known(tmp_path: Path) -> None:
    assert resource_managers({}) == []
    assert resource_managers({"YARN_CONF_DIR": str(tmp_path)}) == []
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    assert resource_managers({"YARN_CONF_DIR": str(tmp_path)}) == []
