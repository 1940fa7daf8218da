"""The report as HTML, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from tuner.export.report import Findings, Report, Section, report_of
from tuner.export.report_facts import Code, Figure, Table
from tuner.export.templates import render_html


def report_html(findings: Findings) -> str:
    """One page that needs no network: style, drawings and plotly.js are inside."""
    from tuner.export import report_plots as plots

    report = report_of(findings)
    drawn = {
        "front": plots.front_figure(report.front, report.chosen, report.confirmation),
        "ablation": plots.ablation_figure(findings.ablation) if findings.ablation is not None else None,
        "load": plots.load_figure(report.curves),
    }
    figures = {name: Markup(text) for name, text in drawn.items() if text is not None}  # noqa: S704 - plotly's own
    library = Markup(plots.plotly_js().replace("</script", "<\\/script")) if figures else ""  # noqa: S704 - likewise
    sections = [(section.title, [_typed(part) for part in section.parts]) for section in report.sections]
    return render_html("report.html.j2", report=report, sections=sections, figures=figures, library=library)


def _typed(part: str | Table | Figure | Code) -> tuple[str, str | Table | Figure | Code]:
    kinds: Mapping[type, str] = {str: "text", Table: "table", Figure: "figure", Code: "code"}
    return kinds[type(part)], part


def report_markdown(findings: Findings) -> str:
    """The same sections as text, without the drawings."""
    report = report_of(findings)
    lines = [f"# {report.study}", ""]
    if report.simulated:
        lines += ["**SIMULATED: a model's numbers; no hardware was measured.**", ""]
    lines += [report.verdict, "", *(f"- {fact}" for fact in report.facts), ""]
    lines += [f"- changed: {setting}" for setting in report.settings]
    columns = ("objective", "unit", "baseline", "chosen", "change", "interval")
    rows = tuple((h.label, h.unit, h.baseline, h.chosen, h.change, h.interval) for h in report.headlines)
    lines += ["", *_markdown_table(Table(columns, rows)), ""]
    for section in report.sections:
        lines += [f"## {section.title}", "", *_markdown_parts(section)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _markdown_parts(section: Section) -> list[str]:
    lines: list[str] = []
    for part in section.parts:
        if isinstance(part, Table):
            lines += [*_markdown_table(part), ""]
        elif isinstance(part, Code):
            fence = "```" if "```" not in part.text else "~~~~"
            lines += [f"### {part.title}", "", fence, part.text.rstrip("\n"), fence, ""]
        elif isinstance(part, str):
            lines += [part, ""]
    return lines


def _markdown_table(table: Table) -> list[str]:
    if not table.rows:
        return [f"({table.empty})"]
    head = [f"| {' | '.join(table.columns)} |", f"|{'---|' * len(table.columns)}"]
    return [*head, *(f"| {' | '.join(map(_cell, row))} |" for row in table.rows)]


def _cell(text: str) -> str:
    """A Markdown cell: a bar would end it, a line break the table."""
    return " ".join(text.replace("|", "\\|").split())


def report_json(findings: Findings) -> str:
    """Keys: study, simulated, verdict, facts, settings, headlines (label, unit, baseline, chosen, change, interval),
    sections (title, texts, tables: columns and rows; code: title and text)."""
    report = report_of(findings)
    document = {
        "study": report.study,
        "simulated": report.simulated,
        "verdict": report.verdict,
        "facts": list(report.facts),
        "settings": list(report.settings),
        "headlines": [_headline(report, place) for place in range(len(report.headlines))],
        "sections": [_section(section) for section in report.sections],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _headline(report: Report, place: int) -> dict[str, Any]:
    line = report.headlines[place]
    keys = ("label", "unit", "baseline", "chosen", "change", "interval")
    return {key: getattr(line, key) for key in keys}


def _section(section: Section) -> dict[str, Any]:
    tables = [part for part in section.parts if isinstance(part, Table)]
    return {
        "title": section.title,
        "texts": [part for part in section.parts if isinstance(part, str)],
        "tables": [{"columns": list(table.columns), "rows": [list(row) for row in table.rows]} for table in tables],
        "code": [{"title": part.title, "text": part.text} for part in section.parts if isinstance(part, Code)],
    }
