"""Space files and launch commands → domain nouns; each problem with file, line and column."""

from tuner.spec.baseline import BaselineSettings, baseline_of
from tuner.spec.differences import space_differences
from tuner.spec.load import LoadedSpace, find_space, list_spaces, load_space, space_hash
from tuner.spec.schema import space_schema
from tuner.spec.sizes import SpaceSize, space_size

__all__ = [
    "BaselineSettings",
    "LoadedSpace",
    "SpaceSize",
    "baseline_of",
    "find_space",
    "list_spaces",
    "load_space",
    "space_differences",
    "space_hash",
    "space_schema",
    "space_size",
]
