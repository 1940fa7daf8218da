"""The plan that `tuner study start` shows before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.cli.output import console, out, print_json
from tuner.cli.wording import SIMULATED, duration
from tuner.spec.reach import reach_of
from tuner.study.session import Prepared
from tuner.trial.script import launch_script


def plan_document(prepared: Prepared) -> dict[str, Any]:
    """What the plan says.

    Keys: study, simulated, model, engines (name → version, program, knobs, combinations, combinations_exact), gpus,
    levels, objectives, limits, budget, worst_case_s, first_launch (argv, env), warnings.
    """
    record, space = prepared.record, prepared.record.space
    budget = space.budget
    plan = prepared.first_plan()
    worst = budget.trials * (budget.launch_timeout_s + budget.benchmark_timeout_s)
    return {
        "study": record.name,
        "simulated": record.simulated,
        "model": space.model,
        "engines": {
            name: {
                "version": setup.installed.version,
                "program": list(setup.installed.program),
                "knobs": len(space.knobs_of(name)),
                "combinations": (reach := reach_of(space, name)).size,
                "combinations_exact": reach.exact,
            }
            for name, setup in prepared.setups.items()
        },
        "gpus": prepared.gpus,
        "levels": list(space.workload.levels),
        "objectives": [goal.label for goal in space.goals],
        "limits": [limit.label for limit in space.limits],
        "budget": budget.model_dump(mode="json"),
        "worst_case_s": worst if budget.hours is None else min(worst, budget.hours * 3600),
        "first_launch": {"argv": list(plan.argv), "env": dict(plan.env)},
        "warnings": list(prepared.warnings),
    }


def show(prepared: Prepared, *, as_json: bool, script: bool) -> None:
    """Print the plan; with `script`, the baseline's launch script too (on stdout, since it was asked for)."""
    document = plan_document(prepared)
    if as_json:
        print_json({**document, "launch_script": launch_script(prepared.first_plan(), Path.cwd())})
        return
    label = f" ({SIMULATED})" if prepared.record.simulated else ""
    console().print(f"study {document['study']}{label}", style="bold", markup=False)
    for name, engine in document["engines"].items():
        version = engine["version"] or "version unknown"
        size = f"{engine['combinations']:,}" if engine["combinations_exact"] else f"at most {engine['combinations']:,}"
        console().print(f"  {name} {version}: {engine['knobs']} knobs, {size} combinations", markup=False)
    budget = prepared.record.space.budget
    gpus = f"{document['gpus']} GPUs per launch" if document["gpus"] else "no GPU"
    console().print(
        f"  {budget.trials} launches ({budget.baseline_launches} of the baseline first), {gpus}, "
        f"C={', '.join(map(str, document['levels']))}; at the very worst {duration(document['worst_case_s'])}",
        markup=False,
    )
    console().print(f"  objectives: {', '.join(document['objectives'])}", markup=False)
    if document["limits"]:
        console().print(f"  limits: {', '.join(document['limits'])}", markup=False)
    for warning in prepared.warnings:
        console().print(f"warning: {warning}", style="yellow", markup=False)
    if script:
        out().print(launch_script(prepared.first_plan(), Path.cwd()), markup=False, soft_wrap=True, end="")
