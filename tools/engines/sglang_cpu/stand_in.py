"""Modules that exist by name only: importable, subclassable, usable as decorators, and loud when called for work."""

import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import Any

from sglang_cpu import scalar_type


class Constant:
    """A compile-time number of a kernel; host code only keeps it."""

    def __init__(self, value: object) -> None:
        self.value = value


InterpolationMode = Enum("InterpolationMode", "NEAREST NEAREST_EXACT BILINEAR BICUBIC BOX HAMMING LANCZOS")

# What SGLang reads at import time and computes with. The arithmetic helpers are Triton's, defined in its
# documentation; `backends` tells torch that no Triton backend is there, so that it does not try to compile with it.
_REAL_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "triton": {
        "__version__": "3.0.0",
        "cdiv": lambda numerator, denominator: -(-numerator // denominator),
        "next_power_of_2": lambda number: 1 << max(number - 1, 0).bit_length(),
        "heuristics": lambda values: lambda kernel: kernel,
    },
    "triton.language": {"constexpr": Constant},
    "triton.backends": {"backends": {}},
    "torchvision": {"__version__": "0.28.0"},
    "torchvision.transforms": {"InterpolationMode": InterpolationMode},
    "torchvision.transforms.functional": {"InterpolationMode": InterpolationMode},
    "torchvision.transforms.v2.functional": {"InterpolationMode": InterpolationMode},
    "sgl_kernel": {"__version__": "0.0.0"},
    "sgl_kernel.scalar_type": {
        "ScalarType": scalar_type.ScalarType,
        "scalar_types": scalar_type.scalar_types,
    },
}


class StandIn:
    """A function of an absent package.

    Called with one function it returns that function (`@jit`), called with keywords only it returns such a decorator
    (`@autotune(configs=...)`); anything else is work that cannot be done here.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> "StandIn":
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return StandIn(f"{self._name}.{attribute}")

    def __call__(self, *args: Any, **options: Any) -> Any:
        if not options and len(args) == 1 and isinstance(args[0], FunctionType | StandIn | type):
            return args[0]
        if options and not args:
            return self
        raise NotImplementedError(f"{self._name} was called, but it does not exist on this CPU")

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"


class StandInModule(ModuleType):
    """A module whose every public name exists: classes for CamelCase, functions for the rest."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        name = f"{self.__name__}.{attribute}"
        value = _stand_in_class(self.__name__, attribute) if attribute[0].isupper() else StandIn(name)
        setattr(self, attribute, value)
        return value


def _stand_in_class(module: str, name: str) -> type:
    """A class that takes any arguments and keeps the named ones; an exception if its name says so."""
    base = Exception if name.endswith("Error") or name.startswith("OutOf") else object

    def keep_options(self: Any, *args: object, **options: object) -> None:
        self.__dict__.update(options)

    return type(name, (base,), {"__module__": module, "__init__": keep_options})


class StandInFinder(MetaPathFinder, Loader):
    """Finds absent packages, and every module inside them."""

    def __init__(self, packages: Iterable[str]) -> None:
        self._packages = frozenset(packages)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] in self._packages:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_REAL_ATTRIBUTES.get(module.__name__, {}))


def install(packages: Iterable[str] = ("triton", "torchvision", "sgl_kernel")) -> None:
    """Answer imports of those packages that are really absent; an installed one is left alone."""
    sys.meta_path.append(StandInFinder(package for package in packages if find_spec(package) is None))
