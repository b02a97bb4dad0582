"""The wire form: update rows, batch bodies, frames. ``wormhole.wire.v1`` is generated from ``proto/``."""
