"""Generate ``clients/go/internal/wirev1`` from ``proto/``, or compare what is committed with what would be generated.

Needs Go. Its plugins for protoc come from the module proxy, in the versions that are named here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scripts.prepare import ROOT

__all__ = ["differences", "generate", "main"]

PROTO: Final = ROOT / "proto"
CLIENT: Final = ROOT / "clients" / "go"
_PACKAGE: Final = "internal/wirev1"
_MODULE: Final = "wormhole-pubsub/clients/go"
_PLUGINS: Final = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.1",
)
_SOURCES: Final = tuple(f"wormhole/wire/v1/{name}.proto" for name in ("push", "schema", "update"))


def generate(target: Path) -> list[Path]:
    """Write the Go of the protocol under ``target``; returns the files, relative to it.

    Raises `subprocess.CalledProcessError` when Go or protoc fails; its message went to standard error.
    """
    with tempfile.TemporaryDirectory() as tools:
        for plugin in _PLUGINS:
            subprocess.run(["go", "install", plugin], cwd=tools, env={**os.environ, "GOBIN": tools}, check=True)
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTO}"]
        for plugin in ("go", "go-grpc"):
            command += [f"--plugin={tools}/protoc-gen-{plugin}", f"--{plugin}_out={target}"]
            command += [f"--{plugin}_opt={option}" for option in (f"module={_MODULE}", *_packages())]
        subprocess.run([*command, *_SOURCES], cwd=ROOT, check=True)
    return sorted(path.relative_to(target) for path in (target / _PACKAGE).glob("*.pb.go"))


def _packages() -> list[str]:
    return [f"M{source}={_MODULE}/{_PACKAGE}" for source in _SOURCES]


def differences() -> list[str]:
    """What differs between the committed generated code and fresh code, one sentence each."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
        committed = {path.relative_to(CLIENT) for path in (CLIENT / _PACKAGE).glob("*.pb.go")}
        return [
            f"clients/go/{path} is not what proto/ gives: run python -m scripts.proto_go"
            for path in sorted(committed.union(fresh))
            if path not in committed
            or path not in fresh
            or (CLIENT / path).read_bytes() != (Path(folder) / path).read_bytes()
        ]


def main(arguments: Sequence[str]) -> int:
    """``--check`` compares; without it the generated files are written."""
    if "--check" in arguments:
        problems = differences()
        print(*problems, sep="\n", end="\n" if problems else "")
        return int(bool(problems))
    for path in generate(CLIENT):
        print(CLIENT / path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
