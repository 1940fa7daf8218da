"""What a host denies or lacks is said of the host; it is no verdict about the script that `tuner verify` was given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support import exports, records

from tuner.cli.main import main
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.workload import Workload
from tuner.export.script import script
from tuner.study import verify
from tuner.trial import denyfiles


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An exported script, on a host whose deny file is `deny.yaml`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(denyfiles, "SYSTEM_FILE", tmp_path / "none.yaml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TUNER_DENY", "deny.yaml")
    file = tmp_path / "serve.sh"
    file.write_text(script(exports.export(workload=Workload())))
    return file


@pytest.mark.parametrize(
    ("deny", "said"),
    [
        ("env:\n  A: {keep: 1, reason: peer access hangs}\n", ("does not set A=1", "peer access hangs", ":2:3")),
        (
            "flags:\n  sglang:\n    --watchdog-timeout: {keep: 9, reason: it hangs}\n",
            ("does not give --watchdog-timeout", "it hangs", ":3:5"),
        ),
        (
            "flags:\n  sglang:\n    --attention-backend: {values: [flashinfer], reason: it crashes}\n",
            ("--attention-backend: it crashes", ":3:5"),
        ),
        ("env:\n  A: {value: 1, reason: r}\n", ("deny.yaml:2:7 env.A.value",)),
    ],
)
def test_a_script_that_the_host_denies_is_not_launched_and_not_called_broken(
    serve: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    deny: str,
    said: tuple[str, ...],
) -> None:
    (serve.parent / "deny.yaml").write_text(deny)
    monkeypatch.setattr(sys, "argv", ["tuner", "verify", str(serve)])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    words = captured.err.replace("\n", "")
    assert ended.value.code == 1
    assert not captured.out
    assert all(text in words for text in said), words
    assert "does not hold" not in words
    assert not (serve.parent / "runs").exists()


@pytest.mark.parametrize(
    ("failure_class", "code", "said"),
    [
        (FailureClass.LOST_WORKER, 4, "serve.sh could not be measured"),
        (FailureClass.PORT_IN_USE, 4, "serve.sh could not be measured"),
        (FailureClass.OOM_WEIGHTS, 3, "serve.sh does not hold any more"),
    ],
)
def test_what_the_machine_did_to_a_launch_is_no_verdict_about_the_script(
    serve: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failure_class: FailureClass,
    code: int,
    said: str,
) -> None:
    failure = Failure(failure_class, Phase.SERVING, ("evidence of it",))
    monkeypatch.setattr(verify, "run_trial", lambda *_, **__: records.failed_report(outcome=failure))
    monkeypatch.delenv("TUNER_DENY")
    monkeypatch.setattr(sys, "argv", ["tuner", "verify", str(serve)])
    with pytest.raises(SystemExit) as ended:
        main()
    words = capsys.readouterr().err
    assert ended.value.code == code, words
    assert f"error: {serve} {said.removeprefix('serve.sh ')}" in words.replace("\n", "")
    assert failure_class.value in words
