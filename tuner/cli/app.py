"""The `tuner` command: sub-commands, and how every error reaches the user."""

from __future__ import annotations

import errno
import os
import signal
import sys
from dataclasses import replace
from types import FrameType
from typing import Annotated, NoReturn

import typer

from tuner import __version__
from tuner.cli import bench, dashboard, doctor, engine, export, space, study, verify
from tuner.cli.logs import log_file
from tuner.cli.output import console, forget_stdout, give_streams, print_error, print_redacted_error
from tuner.errors import InternalError, MachineUnfit, SpecError, Stopped, TunerError
from tuner.secrets import redact

app = typer.Typer(
    name="tuner",
    help="Find, prove and export the fastest safe settings for an LLM server.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(study.app, name="study")
app.add_typer(space.app, name="space")
app.add_typer(engine.app, name="engine")
app.command("bench")(bench.bench)
app.command("export")(export.export)
app.command("verify")(verify.verify)
app.command("dashboard")(dashboard.dashboard)
app.command("doctor")(doctor.doctor)


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SHOWN_OF_LINE = 200


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"tuner {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find, prove and export the fastest safe settings for an LLM server."""


def _report(error: TunerError) -> int:
    if isinstance(error, SpecError):
        for problem in error.problems:
            # In `HF_TOKEN: message` the message is no token: each part is looked at by itself.
            message, hint = redact(problem.message), problem.hint and redact(problem.hint)
            print_redacted_error(str(replace(problem, path=redact(problem.path), message=message, hint=hint)))
            if problem.source_line:
                shown, column = _excerpt(redact(problem.source_line), problem.column)
                console().print(f"    {shown}")
                console().print(f"    {' ' * (column - 1)}^")
    else:
        print_error(error.message, error.hint)
    return error.exit_code


def _excerpt(line: str, column: int) -> tuple[str, int]:
    """The part of a line around a column, where the whole would fill the screen; and the column in it."""
    start = max(0, min(column - _SHOWN_OF_LINE // 2, len(line) - _SHOWN_OF_LINE))
    head, tail = "…" if start else "", "…" if start + _SHOWN_OF_LINE < len(line) else ""
    return f"{head}{line[start : start + _SHOWN_OF_LINE]}{tail}", column - start + len(head)


def _nobody_reads() -> int:
    """The reader of our output went away (`| head`): not an error of ours."""
    forget_stdout()
    return 0


def _report_crash(error: Exception) -> int:
    _log_crash()
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        hint = "make room; a study goes on with `tuner study resume NAME`"
        return _report(MachineUnfit(f"nothing more can be written: {error}", hint=hint))
    print_error(f"internal error: {type(error).__name__}: {error}", f"the traceback is in {log_file()}")
    return InternalError.exit_code


def _log_crash() -> None:
    """Write the traceback of the present exception to the log."""
    import structlog

    from tuner.cli.logs import configure_logging

    configure_logging()
    structlog.get_logger("tuner").exception("internal error")


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def run() -> None:
    """What the command line asks for; never shows a traceback, which goes to the log instead."""
    # Read when numpy is loaded. The search's matrices are small: threads wait for each other longer than they reckon,
    # on cores that servers need, and sums would be rounded differently on another number of cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    give_streams()
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:
        # Ends a command as Ctrl-C does: what it has started is torn down before it ends itself.
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(standalone_mode=False) or 0
        if code == Stopped.exit_code:
            # Typer's word for Ctrl-C.
            print_error("stopped")
        sys.stdout.flush()
    except typer.TyperException as error:
        # Typer's own errors: a wrong option, a missing argument.
        message = error.format_message()
        if message.startswith("Usage:"):
            # A group without a command answers with its help.
            console().print(message)
        elif message:
            print_error(message, "see --help")
        code = error.exit_code
    except TunerError as error:
        code = _report(error)
    except (KeyboardInterrupt, typer.Abort):
        print_error("stopped")
        code = Stopped.exit_code
    except BrokenPipeError:
        code = _nobody_reads()
    except SystemExit as end:
        # Typer calls it an error where the reader of our output went away.
        code = _nobody_reads() if isinstance(end.__context__, BrokenPipeError) else end.code
    except Exception as error:  # noqa: BLE001 - the last resort: log it, say so in one line
        forget_stdout()
        code = _report_crash(error)
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(code if isinstance(code, int) else 0)
