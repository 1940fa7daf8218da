"""The command line and the shipped catalogue are one and the same."""

from __future__ import annotations

import json

import pytest

from tuner.engines.simulated.flags import DEAD_FLAGS, build_parser, catalogue
from tuner.engines.simulated.server import main
from tuner.resources import launchers_dir


def shipped() -> dict[str, object]:
    loaded: dict[str, object] = json.loads((launchers_dir() / "simulated" / "flags" / "1.json").read_text())
    return loaded


def test_the_shipped_catalogue_is_what_the_parser_knows() -> None:
    assert shipped() == json.loads(json.dumps(catalogue()))


def test_every_dead_flag_is_accepted() -> None:
    names = {flag["name"] for flag in catalogue()["flags"]}
    assert set(DEAD_FLAGS) <= names


def test_aliases_carry_the_spellings_of_vllm() -> None:
    args = build_parser().parse_args(["--max-num-seqs", "64", "--gpu-memory-utilization", "0.9", "--enforce-eager"])
    assert (args.max_running_requests, args.mem_fraction_static, args.disable_cuda_graph) == (64, 0.9, True)


@pytest.mark.parametrize(
    "argv",
    [
        ["--no-such-flag"],
        ["--attention-backend", "fa9"],
        ["--max-running-requests", "0"],
        ["--max-running"],
        ["--time-scale", "0"],
        ["--fault", "explode"],
        ["--enable-turbo"],
    ],
)
def test_what_the_parser_refuses_ends_with_exit_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_missing_performance_model_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sim-model", "sm999"]) == 1
    assert "no performance model" in capsys.readouterr().err
