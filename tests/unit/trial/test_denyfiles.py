"""The operator of a host adds to what may not be launched on it; nobody takes anything away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.domain.candidate import Candidate
from tuner.domain.denied import KEPT_ENV
from tuner.domain.launch import LaunchPlan
from tuner.domain.outcome import Failure
from tuner.domain.space import Space
from tuner.domain.trial import Purpose, TrialRequest
from tuner.engines.catalogue import catalogues, load_catalogue
from tuner.engines.definition import load_definition
from tuner.engines.installed import Installed
from tuner.engines.plan import Place
from tuner.errors import SpecError, UserError
from tuner.spec import baseline_of, load_space
from tuner.trial import denyfiles
from tuner.trial.assembly import EngineSetup, engine_setup
from tuner.trial.denyfiles import host_deny_list
from tuner.trial.environment import build_environment
from tuner.trial.runner import run_trial


@pytest.fixture(autouse=True)
def _bare_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denyfiles, "SYSTEM_FILE", tmp_path / "etc" / "deny.yaml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TUNER_DENY", raising=False)


@pytest.fixture
def deny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that `$TUNER_DENY` names."""
    file = tmp_path / "deny.yaml"
    monkeypatch.setenv("TUNER_DENY", str(file))
    return file


def planned(engine: str = "vllm", **space: object) -> LaunchPlan:
    """The launch of an engine's baseline on this host, without the engine."""
    whole = Space.model_validate({"name": "s", "model": "org/model", "engines": {engine: space}})
    catalogue, definition = load_catalogue(engine), load_definition(engine)
    setup = EngineSetup(
        whole,
        definition,
        Installed(definition.program(), None),
        catalogue,
        baseline_of(whole, engine, catalogue),
        host_deny_list(),
    )
    ports = tuple(range(8124, 8124 + len(definition.extra_ports)))
    return setup.plan(setup.baseline_candidate, Place("127.0.0.1", 8123, ports))


def problems(deny: Path) -> list[str]:
    """What is wrong, with the files' names instead of their paths."""
    with pytest.raises(SpecError) as caught:
        host_deny_list()
    return [str(problem).replace(f"{deny.parent}/", "") for problem in caught.value.problems]


def test_without_files_the_built_in_list_holds_alone() -> None:
    deny = host_deny_list()
    assert dict(deny.kept_env) == dict(KEPT_ENV)
    assert deny.refuses_env("NCCL_IB_HCA", "mlx5") is None


def test_a_variable_is_denied_whatever_its_value(deny: Path) -> None:
    deny.write_text("env:\n  NCCL_IB_HCA: {reason: the fabric belongs to storage}\n")
    with pytest.raises(UserError, match=r"NCCL_IB_HCA=mlx5 is not launched: the fabric.*deny\.yaml:2"):
        planned(env={"NCCL_IB_HCA": "mlx5"})


def test_a_variable_that_is_denied_is_not_inherited_either(deny: Path) -> None:
    deny.write_text("")
    assert "HF_TOKEN" in planned().pass_env
    deny.write_text("env: {HF_TOKEN: {reason: no downloads here}, LD_LIBRARY_PATH: {reason: it breaks torch}}\n")
    caller = {"HF_TOKEN": "t", "LD_LIBRARY_PATH": "/lib", "PATH": "/bin"}
    environment = build_environment(planned(), caller, "id")
    assert environment["PATH"] == "/bin"
    assert environment.keys().isdisjoint({"HF_TOKEN", "LD_LIBRARY_PATH"})


def test_a_variable_that_is_kept_goes_to_every_launch_and_takes_no_other_value(deny: Path) -> None:
    deny.write_text("env: {NCCL_P2P_DISABLE: {keep: 1, reason: peer access hangs}}\n")
    assert planned().env["NCCL_P2P_DISABLE"] == "1"
    assert planned(env={"NCCL_P2P_DISABLE": "1"}).env["NCCL_P2P_DISABLE"] == "1"
    with pytest.raises(UserError, match="NCCL_P2P_DISABLE=0 is not launched") as caught:
        planned(env={"NCCL_P2P_DISABLE": "0"})
    assert caught.value.hint == "use 1"


def test_a_kept_value_is_kept_to_the_letter(deny: Path) -> None:
    deny.write_text("env: {VLLM_CACHE_ROOT: {keep: /Data, reason: the only disk}}\n")
    with pytest.raises(UserError, match="not launched"):
        planned(env={"VLLM_CACHE_ROOT": "/data"})


def test_some_values_of_a_flag_are_denied_in_every_spelling_of_the_flag(deny: Path) -> None:
    deny.write_text("flags: {sglang: {--tp: {values: [8], reason: one socket only}}}\n")
    assert "4" in planned("sglang", flags={"--tensor-parallel-size": 4}).argv
    for flag in ("--tp", "--tp-size", "--tensor-parallel-size"):
        with pytest.raises(UserError, match="one socket only"):
            planned("sglang", flags={flag: 8})


def test_a_flag_that_is_kept_goes_to_every_launch_and_takes_no_other_value(deny: Path) -> None:
    deny.write_text(
        "flags: {vllm: {--enforce-eager: {keep: on, reason: graphs crash}, --dtype: {keep: half, reason: r}}}\n"
    )
    argv = planned().argv
    assert "--enforce-eager" in argv
    assert argv[argv.index("--dtype") + 1] == "half"
    with pytest.raises(UserError, match="graphs crash"):
        planned(flags={"--enforce-eager": False})
    with pytest.raises(UserError, match="--dtype is not launched"):
        planned(flags={"--dtype": "auto"})


def test_a_switch_that_is_denied_may_still_be_off(deny: Path) -> None:
    deny.write_text("flags: {vllm: {--enforce-eager: {reason: too slow to be of use}}}\n")
    assert "--enforce-eager" not in planned(flags={"--enforce-eager": False}).argv
    with pytest.raises(UserError, match="--enforce-eager is not launched"):
        planned(flags={"--enforce-eager": True})


def test_a_key_of_a_denied_flag_is_denied_too(deny: Path) -> None:
    deny.write_text("flags: {vllm: {--compilation-config: {reason: leave it alone}}}\n")
    with pytest.raises(UserError, match="leave it alone"):
        planned(flags={"-cc.mode": 3})


def test_a_program_is_held_to_the_list(deny: Path) -> None:
    deny.write_text("env: {NCCL_P2P_DISABLE: {keep: 1, reason: r}}\nflags: {vllm: {--enforce-eager: {reason: r}}}\n")
    with pytest.raises(UserError, match="it changes NCCL_P2P_DISABLE"):
        planned(command=["env", "-u", "NCCL_P2P_DISABLE", "vllm", "serve"])
    with pytest.raises(UserError, match="--enforce-eager: r"):
        planned(command=["vllm", "serve", "--enforce-eager"])


def test_every_file_adds_and_the_built_in_list_stays(
    tmp_path: Path, deny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, own = denyfiles.usual_files()
    for file, name in ((system, "A"), (own, "B"), (deny, "C")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"env: {{{name}: {{reason: r}}}}\n")
    found = host_deny_list()
    assert all(found.refuses_env(name, "x") is not None for name in "ABC")
    assert found.refuses_env("NCCL_NVLS_ENABLE", "1") is not None
    assert found.refuses_flag("sglang", "--enable-symm-mem", True) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("env:\n  A: {keep: 1}\n", "deny.yaml:2:3 env.A: reason is missing"),
        ("env:\n  A: {resaon: x, reason: r}\n", "deny.yaml:2:7 env.A.resaon: unknown key (did you mean reason?)"),
        ("env:\n  A: {keep: 1, values: [2], reason: r}\n", "deny.yaml:2:6 env.A: give keep or values, not both"),
        ("env:\n  A: {keep: [1], reason: r}\n", "deny.yaml:2:13 env.A.keep: must be one value: a number, a text, on"),
        ("env:\n  A: {reason: ''}\n", "deny.yaml:2:15 env.A.reason: must have at least 1 character"),
        ("env:\n  A:\n", "deny.yaml:2:3 env.A: is empty: it must be a mapping (key: value)"),
        ("- A\n", "deny.yaml:1:1 must be a mapping (key: value) (with env, flags)"),
        ("env: {A: {\n", "(the file ends too early: a bracket or quote is not closed)"),
        ("allow: {}\n", "deny.yaml:1:1 allow: unknown key (known here: env, flags)"),
        (
            "env:\n  NCCL_NVLS_ENABLE: {keep: 1, reason: r}\n",
            "deny.yaml:2:3 env.NCCL_NVLS_ENABLE: NCCL_NVLS_ENABLE cannot",
        ),
        ("env:\n  NCCL_NVLS_ENABLE: {reason: r}\n", "every launch keeps NCCL_NVLS_ENABLE at 0 already"),
        ("env:\n  CUDA_VISIBLE_DEVICES: {reason: r}\n", "tuner sets CUDA_VISIBLE_DEVICES itself"),
        ("flags:\n  vlm: {}\n", "deny.yaml:2:3 flags.vlm: there is no engine vlm (did you mean vllm?)"),
        ("flags:\n  vllm:\n    --enforce-eagre: {reason: r}\n", "(did you mean --enforce-eager?)"),
        ("flags:\n  vllm:\n    --port: {keep: 1, reason: r}\n", "tuner sets --port itself"),
        ("flags:\n  vllm:\n    --no-enforce-eager: {reason: r}\n", "--no-enforce-eager only turns --enforce-eager off"),
        ("flags:\n  vllm:\n    --max-num-seqs: {keep: many, reason: r}\n", "takes an integer, not many"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_at_its_place(deny: Path, text: str, expected: str) -> None:
    deny.write_text(text)
    (found,) = problems(deny)
    assert expected in found


def test_all_that_is_wrong_is_said_at_once(deny: Path) -> None:
    deny.write_text(
        "env: {CUDA_VISIBLE_DEVICES: {reason: r}, A: {value: 1, reason: r}}\n"
        "flags: {vlm: {}, vllm: {dtype: {reason: r}}}\nenvs: {}\n"
    )
    assert len(problems(deny)) == 5


def test_two_files_may_not_keep_a_setting_at_two_values(deny: Path) -> None:
    system, _ = denyfiles.usual_files()
    system.parent.mkdir()
    system.write_text("env: {A: {keep: 1, reason: first}}\n")
    deny.write_text("env: {A: {keep: 2, reason: second}}\n")
    (found,) = problems(deny)
    assert "env.A: A cannot be kept at 2: first" in found


def test_a_missing_file_that_was_asked_for_lets_nothing_be_launched(deny: Path) -> None:
    (found,) = problems(deny)
    assert found == "deny.yaml: no such file ($TUNER_DENY names it: write it, or unset TUNER_DENY)"


def test_a_space_is_refused_at_the_place_of_what_the_host_denies(deny: Path, tmp_path: Path) -> None:
    deny.write_text(
        "env: {NCCL_PROTO: {values: [LL], reason: LL hangs here}, NCCL_P2P_DISABLE: {keep: 1, reason: r}}\n"
        "flags: {vllm: {--async-scheduling: {values: [off], reason: r}}}\n"
    )
    space = tmp_path / "s.yaml"
    space.write_text(
        "name: s\nmodel: m/m\nengines:\n  vllm:\n    knobs:\n"
        "      proto: {values: [unset, LL], env: NCCL_PROTO}\n"
        "      p2p: {values: [unset, 1], env: NCCL_P2P_DISABLE}\n"
        "      async: {switch: on, default: off, flag: --async-scheduling}\n"
    )
    load_space(space, catalogues=catalogues())
    with pytest.raises(SpecError) as caught:
        load_space(space, catalogues=catalogues(), deny=host_deny_list())
    proto, p2p, asynchronous = caught.value.problems
    assert (proto.line, proto.path) == (6, "engines.vllm.knobs.proto.values[1]")
    assert "NCCL_PROTO=LL is not allowed: LL hangs here" in proto.message
    assert (p2p.line, p2p.message) == (7, "NCCL_P2P_DISABLE is kept at 1 in every launch")
    assert "--async-scheduling off is not allowed" in asynchronous.message


def request(space: Space, run_dir: Path) -> TrialRequest:
    return TrialRequest(
        study="s",
        trial=0,
        attempt=1,
        purpose=Purpose.BASELINE,
        candidate=Candidate.of(space, "simulated", {}),
        space=space,
        workload=space.workload,
        run_dir=str(run_dir),
    )


def test_the_worker_that_would_launch_refuses_what_its_host_denies(deny: Path, tmp_path: Path) -> None:
    deny.write_text("flags: {simulated: {--launch-seed: {values: [7], reason: not on this host}}}\n")
    space = Space.model_validate({"name": "s", "model": "m", "engines": {"simulated": {"flags": {"--launch-seed": 7}}}})
    report = run_trial(request(space, tmp_path / "r"), gpus=(), notify=lambda _: None, cancelled=lambda: False)
    assert isinstance(report.outcome, Failure)
    assert "not on this host" in report.outcome.evidence[0]
    assert not (tmp_path / "r" / "launch.sh").exists()


def test_a_coordinator_elsewhere_leaves_the_matter_to_the_nodes(deny: Path) -> None:
    deny.write_text("env: {A: {keep: 1, reason: r}}\n")
    space = Space.model_validate({"name": "s", "model": "m", "engines": {"simulated": {}}})
    place = Place("127.0.0.1", 8123)
    for elsewhere in (True, False):
        setup = engine_setup(space, "simulated", elsewhere=elsewhere)
        setup = replace(setup, definition=setup.definition.model_copy(update={"extra_ports": ()}))
        assert ("A" in setup.plan(setup.baseline_candidate, place).env) is not elsewhere


def test_an_exported_script_is_held_to_the_list(deny: Path, tmp_path: Path) -> None:
    deny.write_text("env: {A: {keep: 1, reason: r}, B: {reason: secret of B}}\n")
    space = Space.model_validate({"name": "s", "model": "m", "engines": {"simulated": {}}})
    found = []
    for text in ("exec env -i C=1 server\n", "exec env -i A=1 B=2 server\n"):
        script = tmp_path / "serve.sh"
        script.write_text(f"# A=1\n{text}")
        report = run_trial(
            request(space, tmp_path / "r"), gpus=(), notify=lambda _: None, cancelled=lambda: False, script=script
        )
        assert isinstance(report.outcome, Failure)
        found.append(report.outcome.evidence[0])
    assert "it does not set A=1" in found[0]
    assert "secret of B" in found[1]
