"""What a document tells its reader to run, as it stands there; only the machine's paths and ports are replaced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from scripts.prepare import ROOT
from tests.support.eventually import PATIENCE_S
from tests.support.ports import free_port

_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)

_COMMANDS: Final = {"wormholectl": "-m wormholectl ", "pytest": "-m pytest ", "python": ""}


class Page:
    """A document with every text of ``replaced`` put in place of what it says."""

    def __init__(self, path: str, replaced: Mapping[str, str]) -> None:
        text = (ROOT / path).read_text()
        for old, new in replaced.items():
            assert old in text, f"{path} says {old!r} no longer"
            text = text.replace(old, new)
        self.text = text

    def blocks(self, language: str) -> list[str]:
        """The code of one language, in order, without its indentation."""
        return [textwrap.dedent(code) for _, name, code in _BLOCK.findall(self.text) if name == language]

    def line(self, beginning: str) -> str:
        """The one line for a shell that begins so."""
        lines = [line for block in self.blocks("sh") for line in block.splitlines()]
        (found,) = {line for line in lines if line.startswith(beginning)}
        return found

    def command(self, beginning: str) -> str:
        """The one ``wormholectl`` line that begins so."""
        return self.line(f"wormholectl {beginning}")


def own_port(folder: Path) -> None:
    """Put another free port in place of the one that ``wormholectl init`` found: it is not used yet, so a test
    beside us may find it too."""
    for file in folder.glob("*.toml"):
        file.write_text(re.sub(r"127\.0\.0\.1:2\d{4}\b", lambda _: f"127.0.0.1:{free_port()}", file.read_text()))


class Reader:
    """Somebody who follows a document in ``folder``, with ``wormholectl``, ``pytest`` and their Python, and no
    configuration of this machine.

    ``home``: where their ``HOME`` and these programs are, ``folder`` unless given. ``more``: further variables of the
    environment. ``system``: words that enter a system and a folder of its own, which has other programs; then ``more``
    is the whole environment.
    """

    def __init__(
        self,
        folder: Path,
        home: Path | None = None,
        more: Mapping[str, str] | None = None,
        system: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._system = system
        if system:
            self._environment = dict(more or {})
            return
        home = home or folder
        binaries = home / "bin"
        binaries.mkdir()
        for name, words in _COMMANDS.items():
            command = binaries / name
            command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
            command.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WORMHOLE_")}
        self._environment = kept | {
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            "COLUMNS": "200",
            **(more or {}),
        }

    def shell(self, text: str) -> str:
        """Run it to its end, which has to be a good one; what it printed."""
        ended = subprocess.run(
            [*self._system, "sh", "-ec", text],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ended.returncode == 0, f"{text}\nended with {ended.returncode}: {ended.stdout}"
        return ended.stdout

    @contextmanager
    def running(self, *command: str) -> Iterator[Process]:
        """A process that goes on until it is told to end, which it does well."""
        process = subprocess.Popen(
            [*self._system, *command],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield Process(process)
        finally:
            process.terminate()  # after a failure too: publishers outlive the monitor that is killed
            try:
                status = process.wait(PATIENCE_S)
            finally:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
        assert status == 0


class Process:
    """A running process and what it says, standard error included."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.said: list[str] = []

    @property
    def printed(self) -> list[str]:
        """What an application printed: all that it said but the lines that ``run`` logged."""
        return [line for line in self.said if not line.endswith(" [subscriber_sdk]\n")]

    def says(self, text: str, times: int = 1) -> str:
        """Read until it has said ``text`` so often; the last such line."""
        assert self._process.stdout is not None
        line = ""
        while times:
            line = self._process.stdout.readline()
            assert line, f"it ended without saying {text!r}: {''.join(self.said)}"
            self.said.append(line)
            times -= text in line
        return line
