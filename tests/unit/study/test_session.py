"""What is checked before a study exists, and what is left when it cannot begin."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from support import records

from tuner.domain.candidate import Candidate
from tuner.domain.outcome import Phase
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import LaunchKind
from tuner.errors import MachineUnfit, SpecError, UserError
from tuner.store import driver_url, open_store
from tuner.store.owner import this_process
from tuner.study.learned import learned_limits
from tuner.study.options import RunOptions, StartOptions
from tuner.study.preparing import prepare_start
from tuner.study.resuming import prepare_resume
from tuner.study.runs import runs_root
from tuner.study.session import start_study
from tuner.study.stopping import StopSwitch

SPACE = """\
name: laptop
model: {model}
hardware: {{gpus: {gpus}}}
engines:
  {engine}:
    command: {command}
knobs:
  nccl_proto: {{values: [unset, LL], env: NCCL_PROTO}}
workload: {{input_tokens: 16, output_tokens: 16, levels: [1, 4]}}
budget: {{trials: 5}}
"""


def space(folder: Path, *, engine: str, command: str = "[no-such-program]", model: str = "org/m", gpus: int = 0) -> str:
    file = folder / "laptop.yaml"
    file.write_text(SPACE.format(engine=engine, command=command, model=model, gpus=gpus), encoding="utf-8")
    return str(file)


def test_a_plan_needs_no_engine_no_model_and_no_gpus_but_says_what_is_missing(tmp_path: Path) -> None:
    options = StartOptions(space(tmp_path, engine="vllm", gpus=8), name="night")
    with pytest.raises(MachineUnfit, match="engine vllm is not installed"):
        prepare_start(options)
    prepared = prepare_start(options, only_plan=True)
    assert [text.partition(": ")[2] for text in prepared.warnings] == [
        "engine vllm is not installed: no-such-program was not found",
        "the space wants 8 GPUs, this machine has 0",
    ]
    plan = prepared.first_plan()
    assert plan.argv[0] == "no-such-program"
    assert plan.argv[plan.argv.index("--port") + 1] == "8000"
    assert plan.gpus == tuple(range(8))


def test_a_start_names_everything_that_this_machine_lacks(tmp_path: Path) -> None:
    with pytest.raises(MachineUnfit) as caught:
        prepare_start(StartOptions(space(tmp_path, engine="vllm", gpus=8), name="night"))
    assert caught.value.message == (
        "engine vllm is not installed: no-such-program was not found; the space wants 8 GPUs, this machine has 0"
    )


def test_a_start_names_files_that_cannot_be_read_beside_gpus_that_are_not_there(tmp_path: Path) -> None:
    file = Path(space(tmp_path, engine="vllm", gpus=8))
    file.write_text(f"{file.read_text()}output_check: {{questions: {tmp_path}/none.jsonl}}\n")
    with pytest.raises(MachineUnfit) as caught:
        prepare_start(StartOptions(str(file)))
    assert [part.partition(":")[0] for part in caught.value.message.split("; ")] == [
        "engine vllm is not installed",
        "the space wants 8 GPUs, this machine has 0",
        f"{tmp_path}/none.jsonl",
    ]


def test_going_on_names_everything_that_this_machine_lacks(tmp_path: Path, sqlite_url: str) -> None:
    prepared = prepare_start(StartOptions(space(tmp_path, engine="vllm", gpus=8), name="night"), only_plan=True)
    with open_store(sqlite_url) as store:
        store.create_study(prepared.record)
        with pytest.raises(MachineUnfit, match=r"vllm is not installed: .*; the space wants 8 GPUs"):
            prepare_resume(store, "night")


def test_a_model_folder_that_is_not_here_is_only_a_warning_of_a_plan(tmp_path: Path) -> None:
    options = StartOptions(space(tmp_path, engine="sglang", model="/models/nowhere"))
    with pytest.raises(UserError, match="no model folder /models/nowhere"):
        prepare_start(options)
    assert prepare_start(options, only_plan=True).warnings == (
        "cannot start on this machine: no model folder /models/nowhere",
        "cannot start on this machine: engine sglang is not installed: no-such-program was not found",
    )


def test_an_engine_is_named_as_missing_beside_a_model_that_is_missing_too(tmp_path: Path) -> None:
    options = StartOptions(space(tmp_path, engine="vllm", model="/models/nowhere"))
    with pytest.raises(UserError) as caught:
        prepare_start(options)
    assert [part.partition(":")[0] for part in caught.value.message.split("; ")] == [
        "no model folder /models/nowhere",
        "engine vllm is not installed",
    ]


def test_what_is_wrong_with_the_space_or_the_request_is_an_error_of_a_plan_too(tmp_path: Path) -> None:
    file = space(tmp_path, engine="vllm")
    with pytest.raises(UserError, match="there is no sampler tep") as caught:
        prepare_start(StartOptions(file, sampler="tep"), only_plan=True)
    assert caught.value.hint == "did you mean tpe?"
    with pytest.raises(UserError, match="the space has no engine sglang"):
        prepare_start(StartOptions(file, engines=("sglang",)), only_plan=True)
    with pytest.raises(SpecError):
        prepare_start(StartOptions(space(tmp_path, engine="vlm")), only_plan=True)


def test_a_study_that_cannot_begin_leaves_its_name_free(tmp_path: Path, sqlite_url: str) -> None:
    file = space(tmp_path, engine="simulated", command='["{python}", -m, tuner.engines.simulated]')
    prepared = prepare_start(StartOptions(file, name="night"))
    with open_store(sqlite_url) as store:
        for _ in range(2):
            with pytest.raises(MachineUnfit, match=r"127\.0\.0\.1:1"):
                start_study(
                    prepared,
                    store,
                    RunOptions(ray_address="127.0.0.1:1"),
                    storage_url=sqlite_url,
                    notify=lambda event: None,
                    stop=StopSwitch(),
                )
            assert store.studies() == []
    assert optuna.get_all_study_names(driver_url(sqlite_url)) == []


@pytest.mark.parametrize(
    ("part", "file", "content", "said"),
    [
        ("output_check: {{questions: {file}}}", "questions.jsonl", None, "cannot be read as questions"),
        ("output_check: {{questions: {file}}}", "questions.jsonl", '{{"question": "Who?"}}', "cannot be read as"),
        ("output_check: {{questions: {file}}}", "questions.jsonl", "", "holds no question"),
        ("workload: {{shape: {{kind: jsonl, path: {file}}}}}", "prompts.jsonl", None, "prompts.jsonl: cannot be read"),
    ],
)
def test_files_that_a_study_needs_later_are_looked_at_before_it_begins(
    tmp_path: Path, part: str, file: str, content: str | None, said: str
) -> None:
    given = tmp_path / file
    if content is not None:
        given.write_text(content.format(), encoding="utf-8")
    text = "name: t\nmodel: m\nengines: {simulated: {}}\n" + part.format(file=given)
    (tmp_path / "t.yaml").write_text(text, encoding="utf-8")
    options = StartOptions(str(tmp_path / "t.yaml"))
    with pytest.raises(UserError, match=said):
        prepare_start(options)
    (warning,) = prepare_start(options, only_plan=True).warnings
    assert said in warning
    given.write_text('{"question": "Who?", "answer": "I", "prompt": "Who?"}\n', encoding="utf-8")
    assert prepare_start(options).warnings == ()


def launched(trial: int, kind: LaunchKind, weights_s: float, owner: str | None = None) -> AttemptRecord:
    report = records.measured_report(kind=kind, phase_seconds={Phase.WEIGHTS: weights_s})
    return records.attempt(trial, Candidate("simulated", {}), report, lease_owner=owner or this_process())


def test_a_launch_may_take_as_long_as_its_own_kind_did() -> None:
    warm = [launched(n, LaunchKind.WARM, 5.0) for n in range(4)]
    assert learned_limits(warm)[LaunchKind.PLAIN] == {}
    limits = learned_limits(warm + [launched(n, LaunchKind.PLAIN, 50.0) for n in range(4, 8)])
    assert limits == {LaunchKind.WARM: {Phase.WEIGHTS: 55.0}, LaunchKind.PLAIN: {Phase.WEIGHTS: 145.0}}


def test_what_launches_took_before_the_machine_was_started_anew_says_nothing_of_empty_caches() -> None:
    earlier = this_process().rpartition(":")[0] + ":00000000+1"
    assert learned_limits([launched(n, LaunchKind.PLAIN, 5.0, earlier) for n in range(4)])[LaunchKind.PLAIN] == {}


def test_a_study_that_names_its_folder_from_where_it_was_started_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    earlier = records.attempt(0, Candidate("simulated", {}), run_dir="runs/night/trial-0000/attempt-1")
    assert runs_root("night", [earlier]) == tmp_path / "runs" / "night"
