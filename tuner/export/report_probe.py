"""The report's part about the all-reduce probe: advice first, then every time."""

from __future__ import annotations

from tuner.domain.probe import ProbeReport
from tuner.export.report_facts import Table
from tuner.probe.advice import advice, size_text
from tuner.probe.analysis import ProbeFindings, SizeTime


def probe_parts(report: ProbeReport) -> tuple[str | Table, ...]:
    """Sentences, and a table where the baseline's collectives work: one row per setting, best for decode first."""
    where = f"{report.backend.words}, {report.ranks} ranks, {report.dtype}: advice, not a decision."
    parts: tuple[str | Table, ...] = (where, *advice(report))
    return (*parts, _times(report)) if report.works else parts


def _times(report: ProbeReport) -> Table:
    findings = ProbeFindings(report)
    cells = {(row.setting, row.size_bytes): row for row in findings.times}
    rows = []
    for ranked in findings.ranking:
        found = [cells[ranked.setting.label, size.size_bytes] for size in report.sizes]
        rows.append((ranked.setting.label, str(len(found[0].runs_us)), *map(_cell, found)))
    sizes = tuple(f"{size.step}, {size_text(size.size_bytes)} [µs]" for size in report.sizes)
    return Table(("setting", "runs", *sizes), tuple(rows), numbers=tuple(range(1, 2 + len(sizes))))


def _cell(row: SizeTime) -> str:
    spread = f" ({min(row.runs_us):.1f}–{max(row.runs_us):.1f})" if len(row.runs_us) > 1 else ""
    mark = f" {row.change.center:+.0%}" if row.differs and row.change is not None else ""
    return f"{row.center_us:.1f}{spread}{mark}"
