"""The former place of `wormhole.ports.changes`; see there."""
