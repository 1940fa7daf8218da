"""Space files and launch commands → domain nouns; each problem with file, line and column."""

from tuner.spec.baseline import BaselineSettings, baseline_of
from tuner.spec.load import LoadedSpace, find_space, list_spaces, load_space, space_hash

__all__ = [
    "BaselineSettings",
    "LoadedSpace",
    "baseline_of",
    "find_space",
    "list_spaces",
    "load_space",
    "space_hash",
]
