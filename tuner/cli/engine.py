"""`tuner engine …`: which engines there are, how one is started, and what one of its logs means."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from tuner.cli.options import JsonOption
from tuner.cli.output import out, print_json
from tuner.domain.outcome import FAILURES, Observation, Phase
from tuner.errors import UsageError, UserError

if TYPE_CHECKING:
    from tuner.domain.outcome import Failure
    from tuner.engines.definition import EngineDefinition

app = typer.Typer(no_args_is_help=True, help="Look at engines, and explain their logs.", rich_markup_mode=None)

NONE = "none"
"""What `explain` prints for the class when nothing failed."""
MOST_PIPED = 64 << 20
"""Bytes that are read from a pipe."""
_HEAD = 1 << 16
_MOST_ZEROS = 0.1


@app.command("list")
def list_engines(as_json: JsonOption = False) -> None:
    """List the engines and the versions whose flags are known."""
    from tuner.engines.catalogue import catalogue_versions
    from tuner.engines.definition import load_definitions

    engines = [(definition, catalogue_versions(definition.name)) for definition in load_definitions()]
    if as_json:
        rows = [{"name": d.name, "title": d.title, "simulated": d.simulated, "versions": v} for d, v in engines]
        print_json({"engines": rows})
        return
    for definition, versions in engines:
        _line(f"{definition.name:<12} {definition.title:<18} flags known for {', '.join(versions) or 'no version'}")


@app.command()
def show(name: Annotated[str, typer.Argument(help="Engine name.")], as_json: JsonOption = False) -> None:
    """Show how an engine is started, asked and told apart when it fails."""
    from tuner.engines.catalogue import catalogue_versions, load_catalogue
    from tuner.engines.definition import load_definition
    from tuner.engines.signatures import load_book

    definition, book = load_definition(name), load_book(name)
    versions = catalogue_versions(name)
    flags = {version: len(load_catalogue(name, version).flags) for version in versions}
    signatures = {"failures": len(book.signatures), "harmless": len(book.harmless), "phases": len(book.phases)}
    if as_json:
        print_json({**definition.model_dump(mode="json"), "flags": flags, "signatures": signatures})
        return
    for line in _shown(definition):
        _line(line)
    for version, count in flags.items():
        _line(f"  flags of {version}: {count}")
    _line("  log signatures: " + ", ".join(f"{count} for {what}" for what, count in signatures.items()))


def _line(text: str, style: str | None = None) -> None:
    """One line of an answer, never broken: log lines and flags are there to be copied."""
    out().print(text, style=style, soft_wrap=True)


def _shown(definition: EngineDefinition) -> Iterable[str]:
    yield f"{definition.name}: {definition.title}" + (" (simulated)" if definition.simulated else "")
    model = definition.model_flag or "(first argument)"
    yield f"  command: {' '.join(definition.command)}   model: {model}   port: {definition.port_flag}"
    yield f"  server info: {', '.join(definition.endpoints.server_info) or 'none'}"
    for variable, value in {**definition.env, **definition.trial_env}.items():
        yield f"  sets {variable}={value}" + ("" if variable in definition.env else " (while measuring only)")
    if definition.pass_env:
        yield f"  passes on: {', '.join(definition.pass_env)}"


@app.command()
def explain(
    file: Annotated[str, typer.Argument(help="Log file of a server; - reads standard input.")],
    engine: Annotated[str, typer.Option("--engine", help="Engine that wrote it.")],
    exit_code: Annotated[int | None, typer.Option("--exit-code", help="Exit code; negative for a signal.")] = None,
    seen: Annotated[Observation | None, typer.Option("--seen", help="How it ended as seen from outside.")] = None,
    phase: Annotated[Phase | None, typer.Option("--phase", help="Where the launch was, if known.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A flag or variable that was being tried.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a server failed: class, phase, the lines that decide, what to blame and what to do."""
    from tuner.engines.definition import load_definition
    from tuner.engines.failures import explain as explain_log

    load_definition(engine)
    tried = dict(_assignment(text) for text in settings or ())
    try:
        log = _piped(sys.stdin.buffer, "standard input") if file == "-" else _log_file(file)
        failure = explain_log(log, engine=engine, exit_code=exit_code, settings=tried, observation=seen, phase=phase)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from error
    if as_json:
        print_json(_document(failure))
        return
    _print(failure)


def _log_file(name: str) -> Path | list[str]:
    """The file, or what comes out of it; a device such as /dev/zero would be read without end."""
    path = Path(name)
    if path.is_char_device() or path.is_block_device():
        raise UserError(f"{name}: is a device, not a log", hint="give a file, or - for standard input")
    if path.is_fifo():
        with path.open("rb") as stream:
            return _piped(stream, name)
    with path.open("rb") as stream:
        _refuse_binary(stream.read(_HEAD), name)
    return path


def _piped(stream: BinaryIO, name: str) -> list[str]:
    """Lines from a stream whose size nobody knows, which may have no end."""
    data = stream.read(MOST_PIPED + 1)
    if len(data) > MOST_PIPED:
        hint = "write it to a file first: of a file of any size head, tail and what speaks of trouble are read"
        raise UserError(f"{name}: more than {MOST_PIPED >> 20} MiB", hint=hint)
    _refuse_binary(data[:_HEAD], name)
    return data.decode("utf-8", errors="replace").split("\n")


def _refuse_binary(head: bytes, name: str) -> None:
    """A log may hold broken bytes, but no text is full of zeros."""
    if head.count(0) > _MOST_ZEROS * len(head):
        raise UserError(f"{name}: is no text", hint="give the log of a server")


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--set {text}: write NAME=VALUE")
    return name, value


def _document(failure: Failure | None) -> dict[str, object]:
    if failure is None:
        return {"class": NONE, "phase": None, "evidence": [], "blames": [], "action": "continue", "detail": ""}
    return {
        "class": failure.failure_class.value,
        "phase": failure.phase.value,
        "evidence": list(failure.evidence),
        "blames": list(failure.blames),
        "action": FAILURES[failure.failure_class].action.value,
        "detail": failure.detail,
    }


def _print(failure: Failure | None) -> None:
    if failure is None:
        _line("no failure: nothing in this log decides against the server")
        return
    action = FAILURES[failure.failure_class].action.value.replace("_", " ")
    _line(f"{failure.failure_class.value} in phase {failure.phase.value}", "bold")
    _line(f"  {failure.detail}")
    for line in failure.evidence:
        _line(f"  > {line}", "dim")
    if failure.blames:
        _line(f"  to blame: {', '.join(failure.blames)}")
    _line(f"  a trial gets: {action}")
