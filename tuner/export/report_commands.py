"""The report's part about commands: how to start what was measured, and what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.domain.front import Front, Standing
from tuner.domain.proof import Confirmation
from tuner.domain.study import AttemptRecord, StudyRecord
from tuner.errors import StudyError
from tuner.export.base import export_from
from tuner.export.report_facts import Code
from tuner.export.script import script


def command_parts(
    study: StudyRecord,
    attempts: Sequence[AttemptRecord],
    front: Front,
    chosen: Standing | None,
    confirmation: Confirmation | None,
) -> Iterator[str | Code]:
    """The commands of the chosen configuration and of the baseline, and the space file."""
    if chosen is not None:
        yield (
            f"`tuner export {study.name} --pick {chosen.trial} -o serve.sh` writes the chosen one as a file with its "
            "measurement, and `tuner verify serve.sh` says whether it still holds."
        )
    for title, standing in (("The chosen configuration", chosen), ("The baseline", front.baseline)):
        if standing is None or (title == "The baseline" and standing is chosen):
            continue
        try:
            text = _without_header(script(export_from(front, standing, study, attempts, confirmation)))
        except StudyError as error:
            text = f"# {error.message}\n"
        yield Code(f"{title} (trial {standing.trial})", text)
    yield Code("The space", study.space_text)


def _without_header(text: str) -> str:
    """A script without the comment that it begins with: the report tells all of that elsewhere."""
    shebang = text.partition("\n")[0]
    header, blank, rest = text.partition("\n\n")
    return f"{shebang}{blank}{rest}" if header.startswith("#!") else text
