"""The same for these commands as for those of ``wormholectl``."""

from tests.unit.wormholectl.conftest import admin, plain_environment

__all__ = ["admin", "plain_environment"]
