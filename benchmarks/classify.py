"""How well logs are read: every public failure report against the class it should get, as one command.

    python -m benchmarks.classify [FILE …]

Each report is read twice: as a harness sees it (phase, exit code, what was observed), which must be right, and by its
log alone, which cannot always be. The tables show right classes against given ones; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.failure_cases import DATA, NONE, class_of, read, read_file

from benchmarks.command_line import end_with
from tuner.engines.failures import explain

DEFAULT = [DATA / "cases" / "failures.jsonl", DATA / "cases" / "failures_other_wordings.jsonl"]


def confusion(pairs: Sequence[tuple[str, str]]) -> str:
    """Right class → given classes with counts, one line each; errors marked."""
    lines = []
    for right in sorted({right for right, _ in pairs}):
        given = Counter(got for wanted, got in pairs if wanted == right)
        cells = [f"{got} {count}{'' if got == right else '  <- wrong'}" for got, count in given.most_common()]
        lines.append(f"{right:<18} {sum(given.values()):>3}   {', '.join(cells)}")
    return "\n".join(lines)


def main() -> int:
    """Read every case, print the tables; exit code 1 below the promised quality."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, help="JSON lines; default: all public reports")
    files = parser.parse_args().files or DEFAULT
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        parser.error(f"there is no file {missing}")
    cases = [case for file in files for case in read_file(file)]
    began = time.perf_counter()
    seen = [(case.true_cause, read(case)) for case in cases]
    seconds = time.perf_counter() - began
    alone = [(case.true_cause, class_of(explain(case.lines, engine=case.engine))) for case in cases]
    for title, pairs in (("as a harness sees it", seen), ("by the log alone", alone)):
        print(f"\n{title}: right class, reports, class given\n{confusion(pairs)}")
        for case, (right, got) in zip(cases, pairs, strict=True):
            if right != got:
                print(f"  wrong: {case.id} {right} read as {got}")
    summary = {
        "reports": len(cases),
        "right": _share(seen),
        "right_by_log_alone": _share(alone),
        "harmless_right": _share([pair for pair in seen if pair[0] == NONE]),
        "ms_per_log": round(seconds / len(cases) * 1000, 2),
    }
    print(f"\n{json.dumps(summary)}")
    return 0 if summary["right"] >= 0.95 and summary["harmless_right"] == 1 else 1


def _share(pairs: Sequence[tuple[str, str]]) -> float:
    return round(sum(right == got for right, got in pairs) / len(pairs), 4) if pairs else 1.0


if __name__ == "__main__":
    end_with(main)
