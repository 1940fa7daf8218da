"""Fingerprints of the files that a launch left behind."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from tuner.domain.study import ArtifactRecord


def fingerprint_files(run_dir: str, artifacts: Mapping[str, str]) -> tuple[ArtifactRecord, ...]:
    """One record per kind; a file that cannot be read here (a worker on another machine) has no hash."""
    return tuple(_fingerprint(Path(run_dir), kind, path) for kind, path in artifacts.items())


def _fingerprint(folder: Path, kind: str, path: str) -> ArtifactRecord:
    try:
        with (folder / path).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return ArtifactRecord(kind, path, digest, stream.tell())
    except OSError:
        return ArtifactRecord(kind, path)
