"""What `tuner study failures` prints: failures by class, and what was set aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.cli.output import out, print_json
from tuner.cli.wording import duration
from tuner.domain.outcome import FAILURES
from tuner.store import Store
from tuner.study.looked_at import launches_looked_at
from tuner.study.memory import memory_of
from tuner.study.summary import TrialSummary, summarise


def failure_rows(rows: Sequence[TrialSummary]) -> list[dict[str, Any]]:
    """One document per class, most frequent first.

    Keys: class, fault, words, count, phases, blames, seconds, evidence, log, trials.
    """
    groups: dict[str, list[TrialSummary]] = {}
    for row in rows:
        if row.failure is not None:
            groups.setdefault(row.failure.failure_class.value, []).append(row)
    documents = []
    for name, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        failures = [row.failure for row in members if row.failure is not None]
        policy = FAILURES[failures[0].failure_class]
        blames = dict.fromkeys(blame for failure in failures for blame in failure.blames)
        documents.append(
            {
                "class": name,
                "fault": policy.fault,
                "words": policy.words,
                "count": len(members),
                "phases": list(dict.fromkeys(failure.phase.value for failure in failures)),
                "blames": list(blames),
                "seconds": sum(row.failed_seconds for row in members),
                "evidence": next((f.evidence[0] for f in failures if f.evidence), None),
                "log": f"{members[0].last.run_dir}/server.log",
                "trials": [row.trial for row in members],
            }
        )
    return documents


def print_failures(store: Store, name: str, *, as_json: bool) -> None:
    """A study's failures by class."""
    record = store.study(name)
    attempts = launches_looked_at(store, record)
    documents = failure_rows(summarise(record.space, attempts))
    asides = memory_of(attempts).set_aside
    if as_json:
        shown = [
            {
                "engine": aside.engine,
                "settings": dict(aside.settings),
                "class": aside.failure_class.value,
                "failed": list(aside.failed),
                "rivals": list(aside.rivals),
                "evidence": aside.evidence,
                "had_second_chance": aside.had_second_chance,
            }
            for aside in asides
        ]
        print_json({"study": name, "failures": documents, "set_aside": shown})
        return
    if not documents:
        out().print("no failures")
        return
    for row in documents:
        head = f"{row['class']} × {row['count']} at {', '.join(row['phases'])}, {duration(row['seconds'])}"
        out().print(head, style="bold")
        out().print(f"  {row['words']}")
        if row["blames"]:
            out().print(f"  blames: {', '.join(row['blames'])}")
        if row["evidence"]:
            out().print(f"  {row['evidence']}", style="dim")
        out().print(f"  trials {', '.join(map(str, row['trials']))}; log: {row['log']}")
    for aside in asides:
        out().print(f"set aside: {aside}", style="yellow")
