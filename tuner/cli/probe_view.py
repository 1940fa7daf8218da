"""How an all-reduce probe is printed: a table of times, then what they say."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from tuner.cli.output import out
from tuner.domain.probe import DEFAULT, ProbeReport
from tuner.probe.advice import advice, size_text
from tuner.probe.analysis import ProbeFindings, SizeTime


def probe_document(report: ProbeReport) -> dict[str, Any]:
    """A probe for JSON.

    Keys: engine, backend, ranks, dtype, library, seconds, works, own_all_reduce_up_to_bytes, sizes (bytes, step),
    times (setting, env, bytes, us, runs_us, change with low and high as shares or null), order (settings, best first),
    likely (knob → values), idle (knob, resolution), failures (setting, class, detail, evidence), advice.
    """
    document: dict[str, Any] = {
        "engine": report.engine,
        "backend": report.backend.words,
        "ranks": report.ranks,
        "dtype": report.dtype,
        "library": report.library,
        "seconds": round(report.seconds, 1),
        "works": report.works,
        "own_all_reduce_up_to_bytes": report.own_up_to_bytes,
        "sizes": [{"bytes": size.size_bytes, "step": size.step} for size in report.sizes],
        "failures": [
            {
                "setting": failed.setting,
                "class": failed.failure.failure_class.value,
                "detail": failed.failure.detail,
                "evidence": list(failed.failure.evidence),
            }
            for failed in report.failures
        ],
        "advice": list(advice(report)),
    }
    if not report.works:
        return document
    findings = ProbeFindings(report)
    env = {setting.label: dict(setting.env) for setting in report.settings}
    return document | {
        "times": [
            {
                "setting": row.setting,
                "env": env[row.setting],
                "bytes": row.size_bytes,
                "us": round(row.center_us, 3),
                "runs_us": [round(value, 3) for value in row.runs_us],
                "change": _change(row),
            }
            for row in findings.times
        ],
        "order": [ranked.setting.label for ranked in findings.ranking],
        "likely": {knob: list(values) for knob, values in findings.likely().items()},
        "idle": [{"knob": idle.knob, "resolution": round(idle.resolution, 4)} for idle in findings.idle],
    }


def _change(row: SizeTime) -> dict[str, float] | None:
    if row.change is None:
        return None
    return {
        "center": round(row.change.center, 4),
        "low": round(row.change.low, 4),
        "high": round(row.change.high, 4),
    }


def print_probe(report: ProbeReport) -> None:
    """Times per setting and size, the best for decode steps first, and the advice below."""
    out().print(
        f"all-reduce probe: {report.backend.words}{_library(report)}, {report.ranks} ranks, {report.dtype}, "
        f"{len(report.runs)} runs in {report.seconds:.0f} s",
    )
    if report.works:
        out().print(
            "microseconds per all-reduce: median of the runs (least–most), and what differs beyond noise", style="dim"
        )
        out().print(_table(report))
    for sentence in advice(report):
        out().print(f"→ {sentence}")


def _library(report: ProbeReport) -> str:
    return f" {report.library}" if report.library else ""


def _table(report: ProbeReport) -> Table:
    findings = ProbeFindings(report)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("setting")
    table.add_column("runs", justify="right")
    for size in report.sizes:
        table.add_column(f"{size.step}\n{size_text(size.size_bytes)}", justify="right")
    rows = {(row.setting, row.size_bytes): row for row in findings.times}
    for ranked in findings.ranking:
        found = [rows[ranked.setting.label, size.size_bytes] for size in report.sizes]
        table.add_row(ranked.setting.label, str(len(found[0].runs_us)), *map(_cell, found))
    return table


def _cell(row: SizeTime) -> str:
    """Coloured where it differs from the default beyond noise, with the difference."""
    spread = f" ({min(row.runs_us):.1f}–{max(row.runs_us):.1f})" if len(row.runs_us) > 1 else ""
    text = f"{row.center_us:.1f}{spread}"
    if row.setting == DEFAULT or not row.differs:
        return text
    assert row.change is not None
    return f"[{'red' if row.change.center > 0 else 'green'}]{text} {row.change.center:+.0%}[/]"
