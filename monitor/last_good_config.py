"""The last good configuration, on disk. A host runs it while ZooKeeper does not answer."""

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

# Serializes writes, because a cancelled write continues in its thread while the next write begins.
_WRITING: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class LastGoodConfig:
    """The configuration of every dataset, and whether this host was drained. ``read_at``: when both were read (seconds
    since 1970; ignored by ``==``)."""

    datasets: Mapping[str, DatasetConfig]
    drained: bool
    read_at: float = field(compare=False)

    def store(self, path: Path) -> None:
        """Replace the file at ``path`` atomically and durably. After a power failure it has the old or the new content.

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
        """The stored configuration; ``None`` if the file does not exist. Blocks.

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
