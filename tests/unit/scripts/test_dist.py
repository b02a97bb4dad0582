"""What a release consists of. ``make dist`` makes one and uses it."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import yaml

from scripts import dist
from scripts.prepare import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_there_are_wheels_for_every_python_that_is_admitted() -> None:
    versions = dist.pythons(PROJECT)
    assert f">={versions[0]}" == PROJECT["project"]["requires-python"]
    assert versions == [f"3.{minor}" for minor in range(11, 11 + len(versions))]
    assert len(versions) == len(PROJECT["tool"]["cibuildwheel"]["build"])


def test_what_is_not_packed_is_named() -> None:
    every = set(dist.missing_from(set()))
    assert dist.missing_from(every) == []
    assert dist.missing_from(every - {"wormhole/py.typed"}) == ["wormhole/py.typed"]


def test_the_checksums_are_those_that_sha256sum_reads(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.whl", "b.tar.gz")]
    for file in files:
        file.write_bytes(file.name.encode())
    (tmp_path / "SHA256SUMS").write_text(dist.checksums(files))
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 0
    files[0].write_bytes(b"another")
    assert b"a.whl: FAILED" in subprocess.run(check, cwd=tmp_path, capture_output=True).stdout


def test_the_workflow_publishes_what_it_builds_and_only_that_job_may_sign() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert set(jobs["publish"]["needs"]) == jobs.keys() - {"publish"}
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    built = [step["with"]["name"] for job in jobs.values() for step in job["steps"] if "name" in step.get("with", {})]
    assert all(name.startswith("dist-") for name in built)
    assert len(PROJECT["tool"]["cibuildwheel"]["linux"]["archs"]) == len(jobs["wheels"]["strategy"]["matrix"]["runner"])
