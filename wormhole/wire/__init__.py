"""The wire form: update rows, batch bodies, frames. ``wormhole.wire.v1`` is generated from ``proto/``."""

import google.protobuf

from wormhole.model.requirements import need

__all__: list[str] = []

need("protobuf", google.protobuf.__version__)  # before the generated code fails without a hint
