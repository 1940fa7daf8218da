"""How a benchmark ends when somebody presses Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn


def end_with(main: Callable[[], int | None]) -> NoReturn:
    """End the process with what `main` returns; after Ctrl-C with one line and 130, the code of shells for it."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
