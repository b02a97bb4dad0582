"""What a decoder's fuzz target says about it, and where the targets are found."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from tests.fuzz import targets
from tests.fuzz.mutate import mutate
from tests.support import hot


@dataclass(frozen=True)
class Target:
    """One decoder under fuzz.

    ``module`` is imported once per form and handed to ``decode``, so a target never names the form itself. ``make``
    gives one valid input; the runner breaks it with ``mutate``. ``allowed`` are the errors the decoder documents.
    ``observe`` turns a decoded value into something that can be compared between the forms; left out, the forms are
    compared by whether they gave a value or which error.
    """

    name: str
    module: str
    decode: Callable[[ModuleType, bytes], object]
    make: Callable[[random.Random], bytes]
    allowed: tuple[type[BaseException], ...]
    observe: Callable[[object], object] | None = None
    mutate: Callable[[random.Random, bytes, bytes], bytes] = mutate

    def forms(self) -> dict[str, ModuleType]:
        """The module in every form it has here, by the form's name."""
        imported = importlib.import_module(self.module)
        if self.module not in hot.compiled_names():
            return {"interpreted": imported}
        return {"interpreted": hot.interpreted(self.module), "compiled": imported}


def discover() -> list[Target]:
    """Every target of every module in ``tests/fuzz/targets``, by name; names are unique."""
    found: dict[str, Target] = {}
    for info in pkgutil.iter_modules(targets.__path__):
        module = importlib.import_module(f"{targets.__name__}.{info.name}")
        for target in module.TARGETS:
            if target.name in found:
                raise ValueError(f"two fuzz targets are called {target.name}")
            found[target.name] = target
    return [found[name] for name in sorted(found)]
