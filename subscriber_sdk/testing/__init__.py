"""Support for tests of subscribers: the fixture ``wormhole_kit`` and the builders ``update`` and ``read``.

``changes`` builds updates and bodies, ``backfill`` what ends a chunk of existing rows, ``publisher`` is a publisher in
memory, ``clock`` a loop with a fake clock, ``kit`` joins them and ``plugin`` hands the kit to pytest.
"""

from subscriber_sdk.testing.changes import Change, body_of, read, update
from subscriber_sdk.testing.kit import Kit, KitFlow
from subscriber_sdk.testing.publisher import ScriptedPublisher, frames, marker_at

__all__ = ["Change", "Kit", "KitFlow", "ScriptedPublisher", "body_of", "frames", "marker_at", "read", "update"]
