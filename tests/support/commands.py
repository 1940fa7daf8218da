"""Commands run in this process, since starting Python for each would be most of a test's time, or as real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from support import findings

from tuner.cli.main import main
from tuner.store import open_store

TUNER = [str(Path(sys.executable).with_name("tuner"))]
_SETTINGS = ("TUNER_STORAGE", "TUNER_RUNS", "TUNER_SPACES")


def environment(folder: Path) -> dict[str, str]:
    """For a real process in a folder: without settings of whoever runs the tests, its log beside its files."""
    kept = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
    return {**kept, "TUNER_LOG": str(folder / "tuner.log")}


def tuner(folder: Path, *arguments: str, code: int = 0, patience_s: float = 500.0) -> subprocess.CompletedProcess[str]:
    """Run a command as a real process to its end and check its exit code."""
    done = subprocess.run(
        [*TUNER, *arguments],
        cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=patience_s, check=False,
    )  # fmt: skip
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


def runner(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `tuner ARGUMENTS` in a folder, without settings of whoever runs the tests."""
    monkeypatch.chdir(folder)
    for name in _SETTINGS:
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["tuner", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return Done(int(caught.value.code or 0), out, err)

    return run


def store_night(folder: Path) -> None:
    """Make a `tuner.db` in the folder that holds the confirmed study `night` of `support.findings`."""
    (folder / "tuner.db").write_bytes(_night())


@cache
def _night() -> bytes:
    """That database, made once: its launches would be most of the time of every test that looks at them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tuner.db")
        with open_store(f"sqlite:///{file}") as store:
            store.create_study(findings.findings().study)
            for made in findings.attempts():
                attempt = store.open_attempt(
                    "night",
                    trial=made.trial,
                    attempt=1,
                    purpose=made.purpose,
                    candidate=made.candidate,
                    run_dir=f"runs/night/{made.trial}/1",  # in whichever folder it is looked at from
                    owner="box:1:2:3",
                    ttl=30,
                    block=made.block,
                )
                assert made.report is not None
                store.finish_attempt(attempt.id, made.report)
        return file.read_bytes()
