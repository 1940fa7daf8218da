"""`tuner doctor`: what would stop a study on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tuner.cli.options import JsonOption, StorageOption, duration_s
from tuner.cli.output import console, print_hanging, print_json
from tuner.errors import MachineUnfit, UsageError

if TYPE_CHECKING:
    from tuner.study.doctor import Check

_STYLE = {"ok": "green", "warn": "yellow", "fail": "red"}
_FAIL = "fail"


def doctor(
    storage: StorageOption = None,
    nccl: Annotated[
        bool, typer.Option("--nccl", help="Also measure all-reduces at a model's message sizes (docs/probe.md).")
    ] = False,
    space: Annotated[
        str | None, typer.Option("--space", help="With --nccl: space file whose NCCL knobs, model and levels to take.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --nccl: model folder or name.")] = None,
    engine: Annotated[str | None, typer.Option(help="With --nccl: in whose environment the ranks run.")] = None,
    tp: Annotated[int | None, typer.Option("--tp", min=2, help="With --nccl: ranks, one per GPU.")] = None,
    seconds: Annotated[str, typer.Option(help="With --nccl: begin no run after this long.")] = "120s",
    as_json: JsonOption = False,
) -> None:
    """Look at GPUs, driver, topology, engines, ports and storage; exit 4 when a study cannot run here."""
    from tuner.study.doctor import examine

    if not nccl and any(given is not None for given in (space, model, engine, tp)):
        raise UsageError("--space, --model, --engine and --tp belong to --nccl", hint="add --nccl")
    checks = examine(storage)
    document: dict[str, Any] = {
        "checks": [{"check": c.name, "state": c.state.value, "found": c.found, "advice": c.advice} for c in checks]
    }
    failed = [check.name for check in checks if check.state.value == _FAIL]
    if not as_json:
        _print(checks)
    if nccl:
        from tuner.cli.probe_view import print_probe, probe_document
        from tuner.study.probing import ProbeOptions, probe_host

        options = ProbeOptions(space, model, engine, tp, duration_s(seconds))
        report = probe_host(options, lambda line: console().print(f"probe {line}", style="dim"))
        failed += [] if report.works else [report.backend.words]
        document["probe"] = probe_document(report)
        if not as_json:
            print_probe(report)
    if as_json:
        print_json({**document, "fit": not failed})
    if failed:
        raise MachineUnfit(f"no study can run here: {', '.join(failed)}")


def _print(checks: list[Check]) -> None:
    for check in checks:
        head = Text(f"{check.state.value:4}", style=_STYLE[check.state])
        print_hanging(head, [f"{check.name}: {check.found}", *([f"→ {check.advice}"] if check.advice else [])])
