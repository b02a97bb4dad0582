"""``python -m tests.system.harness.refusing SETTINGS``: an application whose handler refuses some keys, and notes what
it took.

Settings: ``application``, ``log`` (file: a line ``KEY NUMBER`` for each update that was handled), ``refuse`` (file with
the keys to refuse, read each time), ``options`` (of `subscriber_sdk.run`).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from subscriber_sdk import Subscriber, Update, run
from tests.system.harness.child import settings


class _Refusing(Subscriber):
    def __init__(self, given: dict[str, Any]) -> None:
        self._file = os.open(Path(given["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._refuse = Path(given["refuse"])

    async def on_update(self, update: Update) -> None:
        key, after = update.key[0], update.after
        assert isinstance(key, bytes)
        assert after is not None
        if key.decode() in self._refuse.read_text().split():
            raise ValueError("refused")
        value = after["value"]
        assert isinstance(value, bytes)
        os.write(self._file, b"%s %s\n" % (key, value))


def main() -> None:
    """Receive until SIGTERM."""
    given = settings()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run(_Refusing(given), application=given["application"], **given["options"])


if __name__ == "__main__":
    main()
