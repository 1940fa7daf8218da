"""Where the files of a study's launches lie."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tuner.domain.study import AttemptRecord

RUNS_VARIABLE = "TUNER_RUNS"


def runs_folder() -> Path:
    """Folder of new studies' files: `$TUNER_RUNS`, or `runs/` here; it may not be there yet."""
    return Path(os.environ.get(RUNS_VARIABLE) or "runs").absolute()


def runs_root(study: str, attempts: Sequence[AttemptRecord]) -> Path:
    """Folder of a study's run directories: where its earlier launches are, else in `runs_folder`."""
    if attempts:
        return Path(attempts[0].run_dir).absolute().parents[1]
    return runs_folder() / study
