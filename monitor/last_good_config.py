"""The last known good configuration, on disk: what a host runs while ZooKeeper does not answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from wormhole.config import DatasetConfig, dataset_from_json, to_json
from wormhole.model.errors import WormholeError
from wormhole.model.json_input import read_json
from wormhole.model.replace_file import replace_file, sync_to_disk

__all__ = ["LastGoodConfig"]

# A cancelled write still continues in its thread when the next one begins.
_WRITING: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class LastGoodConfig:
    """Every dataset, whether this host was drained, and when both were read (seconds since 1970; not compared)."""

    datasets: Mapping[str, DatasetConfig]
    drained: bool
    read_at: float = field(compare=False)

    def store(self, path: Path) -> None:
        """Write it in one step, durably: after a power failure the file is the previous one or this one.

        Blocks. Raises ``OSError``.
        """
        text = json.dumps(
            {
                "datasets": {name: json.loads(to_json(one)) for name, one in self.datasets.items()},
                "drained": self.drained,
                "read_at": self.read_at,
            },
            sort_keys=True,
        )
        with _WRITING:
            replace_file(path, text)
            sync_to_disk(path.parent)

    @classmethod
    def load(cls, path: Path) -> LastGoodConfig | None:
        """What is stored; ``None`` if nothing is. Blocks.

        Raises :class:`~wormhole.model.errors.WormholeError` for a file that cannot be read or is invalid.
        """
        try:
            given = read_json(path.read_text(encoding="utf-8"))
            datasets = {
                name: dataset_from_json(name, json.dumps(one), f"{path}: datasets.{name}")
                for name, one in given["datasets"].items()
            }
            return cls(datasets, given["drained"] is True, float(given["read_at"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, WormholeError) as error:
            raise WormholeError(
                f"{path} cannot be used: {error}",
                hint="it is written again as soon as ZooKeeper answers; until then nothing is started",
                code="file-unwritable",
            ) from error
