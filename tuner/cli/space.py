"""`tuner space`: look at space files and check them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.options import JsonOption
from tuner.cli.output import console, out, print_json
from tuner.cli.wording import goal_document, limit_document, loads_in_words
from tuner.domain.values import counted

if TYPE_CHECKING:
    from tuner.domain.knob import Knob
    from tuner.spec import LoadedSpace

app = typer.Typer(help="Look at space files (what may be tuned) and check them.", no_args_is_help=True)

SpaceArgument = Annotated[
    str, typer.Argument(metavar="FILE|NAME", help="A space file, or the bare name of one (`tuner space list`).")
]


@app.command()
def check(space: SpaceArgument, as_json: JsonOption = False) -> None:
    """Check a space file; everything wrong with it is reported at once, with line and column.

    Exit code 1 when the file has errors; warnings alone are no error.
    JSON keys: file, ok, engines, errors, warnings (each: line, column, path, message, hint).
    """
    from tuner.errors import SpecError

    try:
        loaded = _load(space)
    except SpecError as error:
        if not as_json:
            raise
        print_json({"file": space, "ok": False, "engines": [], "errors": _problems(error.problems), "warnings": []})
        raise typer.Exit(error.exit_code) from None
    if as_json:
        engines, warnings = list(loaded.space.engines), _problems(loaded.warnings)
        print_json({"file": str(loaded.path), "ok": True, "engines": engines, "errors": [], "warnings": warnings})
        return
    for warning in loaded.warnings:
        console().print(f"warning: {warning}", style="yellow")
    warned = f", {counted(len(loaded.warnings), 'warning')}" if loaded.warnings else ""
    out().print(f"{loaded.path}: ok ({', '.join(loaded.space.engines)}{warned})")


@app.command()
def show(space: SpaceArgument, as_json: JsonOption = False) -> None:
    """Show a space: its knobs, conditions, rules and size, for each engine.

    JSON keys: name, description, file, hash, model, hardware, levels, rates, objectives, limits, rules, warnings, and
    engines → version, size (in words), combinations, exact, naive, rules, knobs (name, values, lands, kind, when,
    default, baseline, likely, describe).
    """
    loaded = _load(space)
    document = _document(loaded)
    if as_json:
        print_json(document)
    else:
        _print(document)


@app.command(name="list")
def list_(as_json: JsonOption = False) -> None:
    """List the space files that a bare name finds: those in $TUNER_SPACES, then the shipped ones.

    JSON keys: spaces (each: name, file, engines, description, error, which is null when the file is sound).
    """
    from tuner.errors import SpecError
    from tuner.spec import list_spaces

    rows: list[dict[str, Any]] = []
    for path in list_spaces():
        row: dict[str, Any] = {"name": path.stem, "file": str(path), "engines": [], "description": "", "error": None}
        try:
            loaded = _load(str(path))
        except SpecError as error:
            row["error"] = str(error.problems[0])
        else:
            row |= {"engines": list(loaded.space.engines), "description": loaded.space.description}
        rows.append(row)
    if as_json:
        print_json({"spaces": rows})
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        engines = f"[{', '.join(row['engines'])}] "
        text = f"has errors: {row['error']}" if row["error"] else engines + row["description"]
        out().print(f"{row['name']:<{width}}  {text}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of space files, for editors.

    With the YAML extension of most editors: save it, and put `# yaml-language-server: $schema=FILE` on top of a space.
    """
    from tuner.spec import space_schema

    print_json(space_schema())


# ---------------------------------------------------------------- what is shown


def _load(name: str) -> LoadedSpace:
    from tuner.engines.catalogue import catalogues
    from tuner.spec import load_space
    from tuner.trial.denyfiles import host_deny_list

    return load_space(name, catalogues=catalogues(), deny=host_deny_list())


def _problems(problems: Any) -> list[dict[str, Any]]:
    return [
        {"line": p.line, "column": p.column, "path": p.path, "message": p.message, "hint": p.hint} for p in problems
    ]


def _document(loaded: LoadedSpace) -> dict[str, Any]:
    space = loaded.space
    return {
        "name": space.name,
        "description": space.description,
        "file": str(loaded.path),
        "hash": loaded.hash,
        "model": space.model,
        "hardware": space.hardware.model_dump(),
        "levels": list(space.workload.levels),
        "rates": list(space.workload.rates),
        "objectives": [goal_document(goal) for goal in space.goals],
        "limits": [limit_document(limit) for limit in space.limits],
        "rules": [{"forbid": rule.forbid, "because": rule.because} for rule in space.rules],
        "engines": {engine: _engine(loaded, engine) for engine in space.engines},
        "warnings": _problems(loaded.warnings),
    }


def _engine(loaded: LoadedSpace, engine: str) -> dict[str, Any]:
    from tuner.engines.catalogue import load_catalogue
    from tuner.spec import baseline_of, space_size

    space = loaded.space
    part, size = space.engines[engine], space_size(space, engine)
    catalogue = load_catalogue(engine, part.version)
    baseline = baseline_of(space, engine, catalogue, folder=loaded.path.parent).values
    return {
        "version": part.version or catalogue.version,
        "size": str(size),
        "combinations": size.combinations,
        "exact": size.exact,
        "naive": size.naive,
        "rules": [{"forbid": rule.forbid, "because": rule.because} for rule in part.rules],
        "knobs": [_knob(name, knob, baseline[name]) for name, knob in space.knobs_of(engine).items()],
    }


def _knob(name: str, knob: Knob, baseline: Any) -> dict[str, Any]:
    from tuner.domain.values import spell

    return {
        "name": name,
        "values": _values(knob),
        "lands": knob.target,
        "kind": "env" if knob.env is not None else "flag",
        "when": knob.when,
        "default": None if knob.default is None else spell(knob.default),
        "baseline": spell(baseline),
        "likely": [spell(value) for value in knob.prior.likely] if knob.prior is not None else [],
        "describe": knob.describe,
    }


def _values(knob: Knob) -> str:
    """A knob's values as one text: `LL, Simple`, `1…8 by equal ratios`, `unset, 0.8…0.94 step 0.02`."""
    from tuner.domain.values import spell

    span = knob.numeric_range
    if span is None:
        return ", ".join(spell(value) for value in knob.grid)
    how = " by equal ratios" if span.log else f" step {span.step}" if span.step is not None else ""
    return f"{'unset, ' if span.unset else ''}{span.low}…{span.high}{how}"


def _print(document: dict[str, Any]) -> None:
    from rich.table import Table

    hardware = document["hardware"]
    gpus = counted(hardware["gpus"], "GPU") if hardware["gpus"] else "no GPU"
    capability = hardware["compute_capability"]
    wanted = [gpus, hardware["gpu_name"], f"compute capability {capability}" if capability else None]
    title = ": ".join(part for part in (document["name"], document["description"]) if part)
    out().print(title, style="bold")
    out().print(f"  model {document['model']}; {', '.join(w for w in wanted if w)}")
    out().print(f"  measured at {loads_in_words(document['levels'], document['rates'])}")
    for goal in document["objectives"]:
        out().print(f"  objective {goal['label']}: {goal['direction']} {goal['words']}")
    for limit in document["limits"]:
        out().print(f"  limit: {limit['words']}")
    for engine, part in document["engines"].items():
        size = f"{part['size']} {'combination' if part['combinations'] == 1 else 'combinations'}"
        out().print()
        out().print(f"{engine} {part['version']}: {counted(len(part['knobs']), 'knob')}, {size}", style="bold")
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("knob", "values", "lands at", "active when", "baseline"):
            table.add_column(column, overflow="fold")
        for knob in part["knobs"]:
            cells = (knob["name"], knob["values"], knob["lands"], knob["when"] or "", knob["baseline"])
            table.add_row(*cells)
        out().print(table)
        for rule in [*document["rules"], *part["rules"]]:
            because = f"  ({rule['because']})" if rule["because"] else ""
            out().print(f"  forbidden: {rule['forbid']}{because}")
    for warning in document["warnings"]:
        console().print(f"warning: line {warning['line']}: {warning['message']}", style="yellow")
