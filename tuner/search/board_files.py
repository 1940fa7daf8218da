"""Notes and files beside the trials of the dashboard; a file stays where it was written and is read when asked for.

Optuna keeps copies of artifacts in a store of their own, and the names of all in its tables. A launch's log, script and
raw records have a place already; so they are put into the dashboard's answers instead, as if they were artifacts.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from wsgiref.types import StartResponse, WSGIEnvironment
from wsgiref.util import FileWrapper

_ARTIFACT = re.compile(r"/artifacts/\d+/(?:\d+/)?(?P<id>[0-9a-f-]+)")


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file that the dashboard offers.

    Attributes:
        name: what it is called there; unique within its trial.
        mimetype: of its content.
        read: opens it; OSError when it is gone.
    """

    name: str
    mimetype: str
    read: Callable[[], BinaryIO]


@dataclass(frozen=True, slots=True)
class Shown:
    """What the dashboard shows besides Optuna's own; the key is a trial's number, None stands for the study."""

    notes: Mapping[int | None, str] = field(default_factory=dict)
    files: Mapping[int | None, Sequence[ShownFile]] = field(default_factory=dict)


class Shelf:
    """Hands out the files that were shown, under names that nobody can guess."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, int | None, str], str] = {}
        self._files: dict[str, ShownFile] = {}

    def put(self, study: str, shown: Shown, part: dict[str, Any], number: int | None) -> None:
        """Add note and files to a trial's part of the dashboard's answer, or to the study's (`number` None).

        A note that somebody wrote in the dashboard stays.
        """
        if not part["note"]["body"] and number in shown.notes:
            part["note"] = {**part["note"], "body": shown.notes[number]}
        for file in shown.files.get(number, ()):
            name = self._ids.setdefault((study, number, file.name), str(uuid.uuid4()))
            self._files[name] = file
            entry = {"artifact_id": name, "filename": file.name, "mimetype": file.mimetype, "encoding": None}
            part["artifacts"] = [*part["artifacts"], entry]

    def send(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes] | None:
        """Answer a request for a file that was shown; None where it is for something else."""
        asked = _ARTIFACT.fullmatch(environ["PATH_INFO"])
        file = self._files.get(asked["id"]) if asked is not None and environ["REQUEST_METHOD"] == "GET" else None
        if file is None:
            return None
        try:
            content = file.read()
        except OSError as error:
            start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{file.name}: {error.strerror}\n".encode()]
        start_response("200 OK", [("Content-Type", file.mimetype), ("X-Content-Type-Options", "nosniff")])
        return FileWrapper(content)
