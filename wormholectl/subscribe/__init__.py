"""The command ``subscribe``: shows the updates that an application receives, without being its subscriber."""
