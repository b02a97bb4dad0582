"""`make soak` runs every test that has a long form, and every run keeps byte code."""

from __future__ import annotations

import re
import subprocess

import pytest

from scripts.prepare import ROOT

_LONG_FORM = re.compile(r"WORMHOLE_ROUNDS|mark\.soak|== \"soak\"|support\.seed import")


def test_every_file_with_a_long_form_is_in_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (listed,) = re.findall(r"^SOAK := ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    places = [ROOT / place for place in listed.replace("\\\n", " ").split()]
    assert [place for place in places if not place.exists()] == []
    long = [file for file in (ROOT / "tests").rglob("test_*.py") if _LONG_FORM.search(file.read_text())]
    assert len(long) > 20
    left_out = [file for file in long if not any(file.is_relative_to(place) for place in places)]
    assert [file for file in left_out if file.name != "test_soak.py"] == []


def test_the_processes_of_a_run_keep_byte_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    command = ["make", "--no-print-directory", "--eval=shown:;@env", "shown"]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "\nPATH=" in f"\n{shown}"
    assert "PYTHONDONTWRITEBYTECODE" not in shown
