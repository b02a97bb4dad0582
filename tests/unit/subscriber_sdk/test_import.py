"""What an application pays for its import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import subscriber_sdk


def test_importing_the_sdk_imports_no_models_and_no_client_of_the_coordinator() -> None:
    code = "import subscriber_sdk, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "kazoo", "cryptography", "publisher"} & set(loaded)
    assert {"subscriber_sdk", "grpc"} <= set(loaded)


@pytest.mark.parametrize("name", subscriber_sdk.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(subscriber_sdk, name) is not None


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        subscriber_sdk.nothing  # noqa: B018 - the test
