"""Generate ``wormhole/wire/v1`` from ``proto/``, or compare what is committed with what would be generated.

Messages only: the two gRPC services use generic handlers (the batch path sends bytes that protobuf never built), so
there is no ``*_pb2_grpc.py``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts import wire_fields
from scripts.prepare import ROOT

__all__ = ["differences", "generate", "main"]

PROTO = ROOT / "proto"


def generate(target: Path) -> list[Path]:
    """Write the Python of every ``.proto`` under ``target``; returns the files, relative to it.

    Raises `subprocess.CalledProcessError` when protoc refuses a file; its message went to standard error.
    """
    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    # grpcio-tools is pinned exactly: the generated text depends on the protoc inside it.
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTO}"]
    command += [f"--python_out={target}", f"--pyi_out={target}", *sources]
    subprocess.run(command, cwd=ROOT, check=True)
    return sorted(path.relative_to(target) for path in (target / "wormhole").rglob("*_pb2.py*"))


def differences() -> list[str]:
    """What differs between the committed generated code and fresh code, one sentence each."""
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
        for path in fresh:
            committed = ROOT / path
            if not committed.exists():
                problems.append(f"{path} is missing: run make proto")
            elif committed.read_bytes() != (Path(folder) / path).read_bytes():
                problems.append(f"{path} is not what proto/ gives: run make proto")
        left_over = {path.relative_to(ROOT) for path in (ROOT / "wormhole").rglob("*_pb2.py*")} - set(fresh)
        problems += [f"{path} has no .proto any more: delete it" for path in sorted(left_over) if path.suffix != ".pyc"]
    return problems


def main(arguments: Sequence[str]) -> int:
    """``--check`` compares; without it the generated files are written."""
    if "--check" in arguments:
        remembered = set(wire_fields.FIELDS.read_text().splitlines())
        problems = differences() + wire_fields.problems(wire_fields.read_descriptors(), remembered)
        print(*problems, sep="\n", end="\n" if problems else "")
        return int(bool(problems))
    wire_fields.remember(wire_fields.read_descriptors())
    for path in generate(ROOT):
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
