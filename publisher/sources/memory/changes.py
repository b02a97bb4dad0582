"""The former place of `wormhole.ports.changes`, for packages of the release before. The next one drops it."""

from wormhole.ports.changes import Change, ChangeEncoder, ChangeTuple, EncodedChange, Key, named_values

__all__ = ["Change", "ChangeEncoder", "ChangeTuple", "EncodedChange", "Key", "named_values"]
