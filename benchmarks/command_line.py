"""What the command lines of all benchmarks have in common: how they end, and how they are given load levels."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from tuner.errors import TunerError


def end_with(main: Callable[[], int | None]) -> NoReturn:
    """End the process with what `main` returns.

    After Ctrl-C, with one line and 130, the code of shells for it; after an error of tuner's, with its line and code.
    """
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    except TunerError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint is not None:
            print(f"  → {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)


def load_levels(words: str) -> tuple[int, ...]:
    """Concurrency levels as an option has them: `1,32,128`.

    Raises:
        argparse.ArgumentTypeError: one is no whole number above zero.
    """
    levels = tuple(int(word) if word.strip().isdecimal() else 0 for word in words.split(","))
    if 0 in levels:
        raise argparse.ArgumentTypeError(f"levels are whole numbers above zero, as in 1,32,128, not {words!r}")
    return levels
