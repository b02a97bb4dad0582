"""Compiled forms of the hot modules, kept in the user's cache for the next checkout that has the same sources.

A set is named by the digest of what it was made from. It appears whole or not at all, holds the checksum of each file,
and is taken only from a folder that no other user can write to. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["KEPT", "keep", "place", "take"]

KEPT = 8
"""The number of sets that stay, those used last. One has about 20 MB."""
_SUMS = "sums"


def place(environment: Mapping[str, str]) -> Path:
    """The folder of all sets, by the XDG base directory specification."""
    root = environment.get("XDG_CACHE_HOME", "")
    return (
        (Path(root) if root.startswith("/") else Path(environment.get("HOME") or "/") / ".cache")
        / "wormhole"
        / "compiled"
    )


def keep(cache: Path, digest: str, root: Path, files: Iterable[Path]) -> None:
    """Put ``files`` of the checkout ``root`` into ``cache`` as the set ``digest``. Raises ``OSError``."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=cache))
    try:
        sums = []
        for number, file in enumerate(files):
            content = file.read_bytes()
            (draft / str(number)).write_bytes(content)
            sums.append(f"{hashlib.sha256(content).hexdigest()} {file.relative_to(root)}\n")
        (draft / _SUMS).write_text("".join(sums))
        shutil.rmtree(cache / digest, ignore_errors=True)
        draft.rename(cache / digest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    sets = sorted(cache.glob("[0-9a-f]*"), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for old in sets[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def take(cache: Path, digest: str, root: Path) -> bool:
    """Put the set ``digest`` into the checkout ``root``; returns whether there was one that is whole."""
    folder = cache / digest
    found = {}
    try:
        if any(part.stat().st_uid != os.geteuid() or part.stat().st_mode & 0o022 for part in (cache, folder)):
            return False
        for number, line in enumerate((folder / _SUMS).read_text().splitlines()):
            checksum, _, name = line.partition(" ")
            found[name] = (folder / str(number)).read_bytes()
            if hashlib.sha256(found[name]).hexdigest() != checksum:
                return False
        os.utime(folder)
    except OSError:
        return False
    for name, content in found.items():
        draft = root / f"{name}.new"
        draft.write_bytes(content)  # its date is now: what it hides is older
        draft.replace(root / name)
    return True
