"""The `tuner` command's entry point: all else takes a second to import, in which Ctrl-C may come already."""

from __future__ import annotations

import sys

from tuner.errors import Stopped


def main() -> None:
    """Do what the command line asks for, or end without a traceback where it is stopped before that began."""
    try:
        from tuner.cli.app import run
    except KeyboardInterrupt:
        if sys.stderr:  # there is none where whoever started the program closed it
            sys.stderr.write("error: stopped\n")
        sys.exit(Stopped.exit_code)
    run()


if __name__ == "__main__":
    main()
