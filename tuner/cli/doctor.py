"""`tuner doctor`: what would stop a study on this machine."""

from __future__ import annotations

from tuner.cli.options import JsonOption, StorageOption
from tuner.cli.output import out, print_json
from tuner.errors import MachineUnfit

_STYLE = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(storage: StorageOption = None, as_json: JsonOption = False) -> None:
    """Look at GPUs, driver, topology, engines, ports and storage; exit 4 when a study cannot run here."""
    from tuner.study.doctor import State, examine

    checks = examine(storage)
    failed = [check.name for check in checks if check.state is State.FAIL]
    if as_json:
        rows = [{"check": c.name, "state": c.state.value, "found": c.found, "advice": c.advice} for c in checks]
        print_json({"checks": rows, "fit": not failed})
    else:
        for check in checks:
            out().print(f"[{_STYLE[check.state]}]{check.state.value:4}[/]  ", end="")
            out().print(f"{check.name}: {check.found}", markup=False, soft_wrap=True)
            if check.advice:
                out().print(f"      → {check.advice}", markup=False, soft_wrap=True)
    if failed:
        raise MachineUnfit(f"no study can run here: {', '.join(failed)}")
