"""What a release consists of, and the newcomer's clock. ``make dist`` makes a release and uses it."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from scripts import debian, dist, newcomer
from scripts.prepare import LOCK, ROOT
from scripts.quickstart import DATASTORES, PAGE, Block, read_page
from scripts.registry import locked

# --- dist: what a release consists of. ``make dist`` makes one and uses it ---


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


def test_what_a_release_is_made_of_is_pinned() -> None:
    """An action by its commit, a base image by its digest, uv by the hashes of the lock file."""
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    uses = [line.strip() for file in workflows for line in file.read_text().splitlines() if "uses:" in line]
    assert uses
    assert [line for line in uses if not re.fullmatch(r"- uses: [\w./-]+@[0-9a-f]{40} # v[\d.]+", line)] == []
    container = (ROOT / "deploy" / "Containerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", container, re.MULTILINE)
    assert [base for base in bases if base != "sdk" and not re.search(r"@sha256:[0-9a-f]{64}$", base)] == []
    lock = (ROOT / "requirements.lock").read_text()
    for text in (*(file.read_text() for file in workflows), container):
        assert not re.search(r"pip install (?:--no-cache-dir )?uv\b(?!\.)", text)
        for cut in re.findall(r"sed -n '([^']+)'", text):
            found = subprocess.run(["sed", "-n", cut], input=lock, capture_output=True, text=True, check=True).stdout
            assert found == locked("uv", lock)


def test_what_builds_a_wheel_is_pinned_as_in_make_dist() -> None:
    """A constraint of what is installed is none of what builds it, by uv and since 26.2 by pip."""
    settings = PROJECT["tool"]["cibuildwheel"]
    given = [str(word).replace(str(LOCK), f"/project/{LOCK.name}") for word in dist._PINNED]
    assert settings["build-frontend"] == {"name": "uv", "args": given}
    assert settings["environment"]["UV_CONSTRAINT"] == f"/project/{LOCK.name}"
    [install] = re.findall(r"uv pip install (?:\\\n|[^\n])*", (ROOT / "deploy" / "Containerfile").read_text())
    for option in ("--constraint", "--build-constraint"):
        assert f"{option} /src/{LOCK.name}" in install


# --- newcomer: what the newcomer's clock counts. ``make dist`` runs it ---


@pytest.mark.parametrize(
    ("language", "code", "count"),
    [("sh", "a\nb", 2), ("sh", "a \\\n b", 1), ("sql", "A;\nB\n  C;", 2), ("sql", "A; B;", 2), ("text", "a\nb", 0)],
)
def test_commands_are_lines_and_statements(language: str, code: str, count: int) -> None:
    assert newcomer.commands(Block(language, code, frozenset(DATASTORES), second=False)) == count


def test_the_page_has_what_the_clock_looks_for() -> None:
    blocks = [block for step in read_page(PAGE.read_text()) for block in step.blocks if "MariaDB" in block.only]
    reached = ["pip install", "wormholectl tail", "wormholectl up", "python subscriber.py"]
    found = [word for block in blocks for word in reached if word in block.code]
    assert found == reached


def test_the_page_of_sinks_has_a_copy_to_follow() -> None:
    (step,) = read_page(newcomer.mirror_page())
    typed = [line for block in step.blocks if block.language == "sh" for line in block.code.splitlines()]
    named = ("pip install", "wormholectl init", "wormholectl up", "wormholectl verify")
    assert [name for line in typed for name in named if name in line] == list(named)


def test_the_table_of_others_is_found() -> None:
    header, _, *rows = newcomer._others()
    assert header.startswith("| product |")
    assert len(rows) == 3


def test_a_machine_on_which_it_cannot_run_gets_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(debian, "without_chroot", lambda: "only root may")
    assert newcomer.main() == 0
    assert "the clock does not run here: only root may" in capsys.readouterr().out
