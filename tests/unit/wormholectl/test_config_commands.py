from __future__ import annotations

import json
from pathlib import Path

from tests.support.command_line import run
from tests.unit.wormholectl.test_operate import DATASET, application, toml


def test_checking_a_configuration(tmp_path: Path) -> None:
    good = toml(tmp_path, DATASET, application("true"))
    assert run("config", "check", str(good)) == (0, f"{good}: right. Logs: shop/main/db1. Applications: cache.\n", "")
    code, out, _ = run("config", "check", str(good), "--json")
    certificates: dict[str, list[str]] = {"facts": [], "faults": []}
    about = {"logs": ["shop/main/db1"], "applications": ["cache"], "certificates": certificates}
    assert json.loads(out) == {"schema": 1, "ok": True, **about}
    bad = toml(tmp_path, DATASET, application("true"), "unknown_key = 1\n")
    code, out, _ = run("config", "check", str(bad), "--json")
    assert code == 2
    assert json.loads(out)["ok"] is False
    assert "unknown_key" in "".join(json.loads(out)["problems"])
