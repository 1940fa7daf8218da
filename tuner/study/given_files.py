"""Files of the user's that a study reads while it runs; what is wrong with them is said before the first launch."""

from __future__ import annotations

from pathlib import Path

from tuner.domain.space import Space
from tuner.domain.workload import DatasetShape
from tuner.errors import UserError
from tuner.trial.output_check import read_questions


def refuse_unreadable(space: Space) -> None:
    """Look at the data set and at the finalists' questions, which are needed in the study's last hour.

    Raises:
        UserError: naming the file that cannot be read, or holds no question.
    """
    shape, check = space.workload.shape, space.output_check
    if isinstance(shape, DatasetShape):
        try:
            with Path(shape.path).open("rb"):
                pass
        except OSError as error:
            raise UserError(
                f"{shape.path}: cannot be read: {error.strerror}", hint="workload.shape.path names the prompts"
            ) from error
    if check.enabled and check.questions is not None:
        read_questions(Path(check.questions))
