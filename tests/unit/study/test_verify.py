"""What a host denies is said of the host; it is no verdict about the script that `tuner verify` was given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support import exports

from tuner.cli.main import main
from tuner.domain.workload import Workload
from tuner.export.script import script
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
