"""Failures are named right: on public reports, on whole logs of real servers, and on what a harness saw."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.failure_cases import DATA, NONE, Case, class_of, read, read_cases

from tuner.domain.outcome import FailureClass, Observation, Phase
from tuner.engines.failures import explain, is_fatal_line
from tuner.engines.logs import HEAD_BYTES, TAIL_BYTES

CASES = read_cases("failures.jsonl")
OTHERS = read_cases("failures_other_wordings.jsonl")
LOGS = DATA / "logs"


def ids(case: Case) -> str:
    return case.id


# -- public reports


def test_at_least_95_percent_of_the_public_reports_get_the_right_class() -> None:
    wrong = [case.id for case in CASES if read(case) != case.true_cause]
    assert len(wrong) <= 0.05 * len(CASES), wrong


@pytest.mark.parametrize("case", [case for case in CASES if case.true_cause == NONE], ids=ids)
def test_a_server_that_runs_is_never_called_failed(case: Case) -> None:
    assert read(case) == NONE
    assert class_of(explain(case.lines, engine=case.engine)) == NONE


@pytest.mark.parametrize("case", [case for case in CASES if case.harmless_lines], ids=ids)
def test_harmless_lines_decide_nothing(case: Case) -> None:
    def is_harmless(line: str) -> bool:
        return any(text in line for text in case.harmless_lines)

    assert any(map(is_harmless, case.lines))
    assert read(case, [line for line in case.lines if not is_harmless(line)]) == read(case)
    failure = explain(case.lines, engine=case.engine, **case.circumstances)
    assert failure is None or not is_harmless(failure.evidence[0])


@pytest.mark.parametrize("case", OTHERS, ids=ids)
def test_other_wordings_of_the_same_kinds_are_read_alike(case: Case) -> None:
    assert read(case) == case.true_cause


@pytest.mark.parametrize("case", [case for case in CASES if case.true_cause != NONE], ids=ids)
def test_every_failure_shows_evidence_from_its_log_and_words_for_the_user(case: Case) -> None:
    failure = explain(case.lines, engine=case.engine, **case.circumstances)
    assert failure is not None
    assert failure.evidence
    assert failure.detail
    # Evidence is a line of the log (shortened, redacted), or what was seen from outside.
    assert any(shown[:40] in case.log for shown in failure.evidence) or case.circumstances.get("exit_code")


# -- whole logs of real servers


@pytest.mark.parametrize(
    ("name", "failure_class", "phase", "blamed"),
    [
        ("vllm-0.26-kv-allocation-oom", FailureClass.OOM_GRAPH, Phase.GRAPH_CAPTURE, "--kv-cache-memory-bytes"),
        ("vllm-0.26-nccl-algo-tree", FailureClass.NCCL_CONFIG, Phase.PROFILE, "NCCL_ALGO"),
        ("vllm-0.26-max-model-len", FailureClass.BAD_FLAG, Phase.PARSE, "--max-model-len"),
        ("vllm-0.26-memory-share-0.05", FailureClass.KV_TOO_SMALL, Phase.PROFILE, "--gpu-memory-utilization"),
    ],
)
def test_real_logs_of_failed_launches(name: str, failure_class: FailureClass, phase: Phase, blamed: str) -> None:
    failure = explain(LOGS / f"{name}.log", engine="vllm", exit_code=1)
    assert failure is not None
    assert (failure.failure_class, failure.phase) == (failure_class, phase)
    assert blamed in failure.blames
    assert failure.exit_code == 1


@pytest.mark.parametrize(
    "name", ["vllm-0.26-good", "sglang-0.5.16-good", "vllm-0.32-cpu-stopped", "sglang-0.5.23-cpu-stopped"]
)
def test_real_logs_of_good_launches_show_no_failure(name: str) -> None:
    engine = name.split("-")[0]
    assert explain(LOGS / f"{name}.log", engine=engine) is None
    assert explain(LOGS / f"{name}.log", engine=engine, exit_code=-15) is None
    fatal = is_fatal_line(engine)
    assert not [line for line in (LOGS / f"{name}.log").read_text().splitlines() if fatal(line)]


@pytest.mark.parametrize("name", ["kv-allocation-oom", "nccl-algo-tree", "memory-share-0.05"])
def test_a_line_tells_that_waiting_is_useless_before_the_process_ends(name: str) -> None:
    lines = (LOGS / f"vllm-0.26-{name}.log").read_text().splitlines()
    fatal = is_fatal_line("vllm")
    first = next(number for number, line in enumerate(lines) if fatal(line))
    assert first < len(lines) - 20


def test_a_crash_under_load_is_read_from_the_end_of_a_good_log() -> None:
    good = (LOGS / "vllm-0.26-good.log").read_text().splitlines()
    crash = (
        "(EngineCore pid=3162) ERROR 11-29 21:40:00 [core.py:1330] torch.OutOfMemoryError: CUDA out of memory. Tried"
    )
    failure = explain([*good, crash], engine="vllm", exit_code=1)
    assert failure is not None
    assert (failure.failure_class, failure.phase) == (FailureClass.OOM_RUNTIME, Phase.SERVING)


# -- which of several errors decides


def test_the_first_fatal_error_decides_not_the_last() -> None:
    log = [
        "(Worker_TP1 pid=8) ERROR 02-11 20:42:56 [a.py:1] ValueError: No available memory for the cache blocks.",
        "(Worker_TP0 pid=7) ERROR 02-11 20:42:57 [a.py:1] RuntimeError: CUDA error: misaligned address",
    ]
    assert class_of(explain(log, engine="vllm")) == "kv_too_small"
    assert class_of(explain(log[::-1], engine="vllm")) == "cuda_fault"


def test_the_exception_is_shown_rather_than_the_source_line_that_raised_it() -> None:
    log = [
        "Traceback (most recent call last):",
        '  File "validators.py", line 133, in validate_repo_id',
        "    raise HFValidationError(",
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name': '/no/model'.",
    ]
    failure = explain(log, engine="vllm", exit_code=1)
    assert failure is not None
    assert failure.failure_class is FailureClass.MODEL_ACCESS
    assert failure.evidence == (log[-1],)


def test_another_ranks_own_error_beats_a_closed_connection_seen_first() -> None:
    log = [
        "[2026-01-01 10:00:00 TP1] RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:1",
        "[2026-01-01 10:00:01 TP0] torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    ]
    assert class_of(explain(log, engine="sglang")) == "cuda_fault"
    assert class_of(explain(log[:1], engine="sglang")) == "unknown"


def test_an_error_that_the_launch_survived_does_not_decide() -> None:
    log = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "(APIServer pid=1) INFO:     Application startup complete.",
    ]
    assert class_of(explain(log, engine="vllm")) == NONE
    assert class_of(explain(log[:3], engine="vllm")) == "cuda_fault"


def test_a_warning_about_memory_is_no_failure_but_the_same_text_as_an_error_is() -> None:
    text = "CUDA out of memory. Tried to allocate 2.00 GiB."
    assert explain([f"WARNING 03-03 01:01:01 [x.py:1] {text}"], engine="vllm") is None
    assert class_of(explain([f"ERROR 03-03 01:01:01 [x.py:1] {text}"], engine="vllm")) == "oom_weights"


@pytest.mark.parametrize(
    ("phase", "failure_class"),
    [
        (Phase.WEIGHTS, "oom_weights"),
        (Phase.PROFILE, "oom_weights"),
        (Phase.COMPILE, "oom_graph"),
        (Phase.GRAPH_CAPTURE, "oom_graph"),
        (Phase.SERVING, "oom_runtime"),
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA driver error: out of memory",
        "RuntimeError: cuda runtime error (2) : out of memory at /x.cu:1",
        "RuntimeError: CUDA failed with error out of memory",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB.",
    ],
)
def test_running_out_of_gpu_memory_means_another_class_in_another_phase(
    text: str, phase: Phase, failure_class: str
) -> None:
    assert class_of(explain([text], engine="vllm", phase=phase, exit_code=1)) == failure_class


def test_memory_slots_are_not_gpu_memory() -> None:
    assert explain(["INFO: cache is out of memory slots, evicting"], engine="sglang") is None


# -- settings of the trial


def test_a_system_error_of_nccl_is_the_settings_fault_only_with_a_setting_in_play() -> None:
    log = [
        "torch.distributed.DistBackendError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"
    ]
    assert class_of(explain(log, engine="vllm")) == "env_setup"
    assert class_of(explain(log, engine="vllm", settings={"NCCL_DEBUG": "INFO"})) == "env_setup"
    failure = explain(log, engine="vllm", settings={"NCCL_GRAPH_FILE": "/etc/graph.xml"})
    assert class_of(failure) == "nccl_config"
    assert failure is not None
    assert failure.blames[0] == "NCCL_GRAPH_FILE"
    shm = [*log, "Error while creating shared memory segment /dev/shm/nccl-1 (size 9637888)"]
    assert class_of(explain(shm, engine="vllm", settings={"NCCL_P2P_LEVEL": "SYS"})) == "shm_too_small"


def test_what_the_trial_set_is_blamed_first() -> None:
    log = ["torch.OutOfMemoryError: CUDA out of memory."]
    plain = explain(log, engine="vllm")
    assert plain is not None
    assert plain.blames[0] == "--gpu-memory-utilization"
    own = explain(log, engine="vllm", settings={"--max_num_seqs": "512", "NCCL_ALGO": "Ring"})
    assert own is not None
    assert own.blames[0] == "--max_num_seqs"
    assert "NCCL_ALGO" not in own.blames


def test_the_flag_that_a_message_names_is_blamed() -> None:
    log = ["vllm serve: error: argument --max-num-seqs: invalid int value: 'many'"]
    failure = explain(log, engine="vllm", exit_code=2)
    assert failure is not None
    assert failure.failure_class is FailureClass.BAD_FLAG
    assert failure.blames == ("--max-num-seqs",)


def test_a_message_with_numbers_is_put_into_words() -> None:
    log = ["ValueError: 6.64 GiB KV cache is needed, larger than available (4.36 GiB)"]
    failure = explain(log, engine="vllm")
    assert failure is not None
    assert "6.64" in failure.detail
    assert "4.36" in failure.detail
    assert "raise --gpu-memory-utilization" in failure.detail


# -- how the process ended


@pytest.mark.parametrize(
    ("exit_code", "failure_class"),
    [
        (None, NONE),
        (0, NONE),
        (-15, NONE),
        (143, NONE),
        (1, "unknown"),
        (-9, "host_oom"),
        (137, "host_oom"),
        (-7, "shm_too_small"),
        (-11, "unknown"),
        (-6, "unknown"),
        (-3, "unknown"),
    ],
)
def test_an_exit_code_alone(exit_code: int | None, failure_class: str) -> None:
    assert class_of(explain(["INFO 03-03 01:01:01 [x.py:1] fine"], engine="vllm", exit_code=exit_code)) == failure_class


def test_a_kill_after_the_engines_own_error_is_not_the_hosts() -> None:
    log = ["[2026-01-01 10:00:00] Received sigquit from a child process. It usually means the child failed.", "Killed"]
    assert class_of(explain(log[:1], engine="sglang", exit_code=-9)) == "unknown"
    assert class_of(explain(["Killed"], engine="sglang", exit_code=137)) == "host_oom"
    cause = "[2026-01-01 10:00:00 TP0] torch.AcceleratorError: CUDA error: misaligned address"
    assert class_of(explain([cause, *log], engine="sglang", exit_code=-9)) == "cuda_fault"


def test_an_empty_log_is_read_by_what_was_seen() -> None:
    assert explain([], engine="vllm") is None
    assert explain([], engine="vllm", exit_code=0) is None
    assert class_of(explain([], engine="vllm", exit_code=1)) == "unknown"
    assert class_of(explain([], engine="vllm", observation=Observation.HUNG)) == "engine_stall"


def test_a_server_known_to_run_has_not_failed_whatever_its_log_ends_with() -> None:
    log = ["(Worker pid=3168) INFO 11-29 21:33:33 [pynccl.py:113] vLLM is using nccl==2.28.9"]
    assert explain(log, engine="vllm", observation=Observation.RUNNING) is None


# -- hangs


@pytest.mark.parametrize(
    ("phase", "failure_class"),
    [
        (Phase.SPAWN, "engine_stall"),
        (Phase.NCCL_INIT, "nccl_hang"),
        (Phase.WEIGHTS, "engine_stall"),
        (Phase.GRAPH_CAPTURE, "engine_stall"),
        (Phase.SERVING, "engine_stall"),
    ],
)
@pytest.mark.parametrize("observation", [Observation.HUNG, Observation.DEADLINE])
def test_a_hang_is_named_by_its_phase(phase: Phase, failure_class: str, observation: Observation) -> None:
    failure = explain(["some line"], engine="vllm", observation=observation, phase=phase)
    assert class_of(failure) == failure_class
    assert failure is not None
    assert failure.phase is phase
    assert phase.value in failure.evidence[-1]


def test_a_hang_whose_last_lines_are_nccls_is_a_collective() -> None:
    log = ["gpu1:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init START"]
    assert class_of(explain(log, engine="sglang", observation=Observation.HUNG, phase=Phase.WARMUP)) == "nccl_hang"


def test_a_rank_out_of_memory_explains_why_the_others_hang() -> None:
    log = [
        "[2026-01-01 10:00:00 TP0] Capture cuda graph begin. This can take up to several minutes.",
        "[2026-01-01 10:00:05 TP3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.",
    ]
    assert class_of(explain(log, engine="sglang", observation=Observation.HUNG)) == "oom_graph"


def test_slow_compilation_is_no_hang_and_silence_after_it_is() -> None:
    silent = (
        "(EngineCore pid=1) INFO 05-20 20:3{}:51 [a.py:1] No available shared memory broadcast block found in 60 s."
    )
    progress = "(Worker_TP0 pid=2) INFO 05-20 20:36:19 [backends.py:1148] Dynamo bytecode transform time: 88.00 s"
    assert explain([silent.format(1), progress, silent.format(2), progress, silent.format(3)], engine="vllm") is None
    assert class_of(explain([progress, *map(silent.format, range(3))], engine="vllm")) == "engine_stall"


# -- reading files


def test_secrets_in_evidence_are_hidden(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("ValueError: Unknown attention backend: 'X' HF_TOKEN=hf_abcdefghijklmnopqrstuvwx\n")
    failure = explain(log, engine="vllm")
    assert failure is not None
    assert "hf_abcdef" not in "".join(failure.evidence)


def test_invalid_utf8_does_not_hide_the_cause(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"\xff\xfe\x00 progress \xc3\x28\n" * 50 + b"RuntimeError: CUDA error: misaligned address \xff\n")
    assert class_of(explain(log, engine="vllm")) == "cuda_fault"


def test_the_cause_is_found_in_the_middle_of_a_flooded_log(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    flood = b"".join(b"INFO 03-03 01:01:01 [x.py:%d] request %d done\n" % (n % 90, n) for n in range(30_000))
    with log.open("wb") as stream:
        stream.write(flood)
        stream.write(b"RuntimeError: CUDA error: misaligned address\n")
        stream.write(flood * 2)
    assert len(flood) > HEAD_BYTES
    assert log.stat().st_size - TAIL_BYTES > len(flood), "the cause lies in neither end"
    failure = explain(log, engine="vllm", exit_code=1)
    assert class_of(failure) == "cuda_fault"
