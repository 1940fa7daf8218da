"""Warm launches of real vLLM and SGLang on the CPU: the server that a plain launch gives, sooner, and just as gone."""

from __future__ import annotations

import getpass
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tuner.domain.candidate import Candidate
from tuner.domain.space import Space
from tuner.engines.control import ControlPlane, NotReadyError
from tuner.engines.failures import is_fatal_line
from tuner.engines.phasemarks import phase_of_line
from tuner.engines.plan import Place
from tuner.trial.assembly import EngineSetup, engine_setup
from tuner.trial.deadlines import PhaseDeadlines
from tuner.trial.ports import reserve_ports
from tuner.trial.process import ServerHandle, launch
from tuner.trial.proctree import is_alive
from tuner.trial.record import FILE, LaunchRecord
from tuner.trial.warm import ColdError, WarmParents
from tuner.trial.watchdog import wait_ready

ROOT = Path(__file__).parents[2]
MODEL = ROOT / ".cache" / "models" / "tiny"
BIN = {engine: ROOT / ".engines" / engine / "bin" for engine in ("vllm", "sglang")}
SPACE = {
    "name": "warm",
    "model": str(MODEL),
    "engines": {
        "vllm": {
            "version": "0.32.0",
            "command": [str(BIN["vllm"] / "vllm"), "serve"],
            "flags": {"--load-format": "dummy", "--enforce-eager": True, "--max-model-len": 512},
            "env": {"HF_HUB_OFFLINE": 1, "VLLM_CPU_KVCACHE_SPACE": 1, "VLLM_HOST_IP": "127.0.0.1"},
            "knobs": {
                "batch": {"values": [None, 3], "flag": "--max-num-seqs"},
                "cores": {"values": [None, "0"], "env": "VLLM_CPU_OMP_THREADS_BIND"},
                "at_import": {"values": [None, "DEBUG"], "env": "VLLM_LOGGING_LEVEL"},
                "at_load": {"values": [None, "2"], "env": "MALLOC_ARENA_MAX"},
            },
        },
        "sglang": {
            "version": "0.5.23",
            "command": [str(BIN["sglang"] / "python"), "-m", "sglang.launch_server"],
            "flags": {
                "--device": "cpu",
                "--attention-backend": "torch_native",
                "--load-format": "dummy",
                "--context-length": 512,
                "--max-total-tokens": 4096,
            },
            "env": {"HF_HUB_OFFLINE": 1, "SGLANG_USE_CPU_ENGINE": 1, "OMP_NUM_THREADS": 1},
            "knobs": {
                "batch": {"values": [None, 3], "flag": "--max-running-requests"},
                "cores": {"values": [None, "0"], "env": "SGLANG_CPU_OMP_THREADS_BIND"},
                "at_import": {"values": [None, "SGL_X"], "env": "SGL_X"},
                "at_load": {"values": [None, "2"], "env": "MALLOC_ARENA_MAX"},
            },
        },
    },
}
SETTINGS = {"batch": 3, "cores": "0"}
# What differs from launch to launch by its nature, in the resolved settings.
_OWN = re.compile(
    r"port|seed|time|uuid|tcp://|init_method|instance_id|ipc|uptime|avg|memory|mem_usage|throughput|load|env_vars|shm_buffer"
)

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not MODEL.exists() or not all(map(Path.exists, BIN.values())), reason="run `make engines`"),
]


@dataclass(frozen=True)
class View:
    """What can be seen of a running server from outside."""

    settings: Mapping[str, Any]
    workers: list[tuple[str, ...]]
    tokens: int


@pytest.fixture(scope="module", autouse=True)
def temporary() -> Iterator[Path]:
    """A temporary folder that nobody else uses; a process with the engine's imports must have the same."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        yield Path(folder)


@pytest.fixture(scope="module")
def parents(temporary: Path) -> Iterator[WarmParents]:
    kept = WarmParents()
    yield kept
    kept.close()


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def setup(request: pytest.FixtureRequest) -> EngineSetup:
    return engine_setup(Space.model_validate(SPACE), request.param)


@contextmanager
def serving(
    setup: EngineSetup, run_dir: Path, parents: WarmParents | None, values: Mapping[str, Any], **env: str
) -> Iterator[tuple[ServerHandle, ControlPlane]]:
    candidate = Candidate.of(setup.space, setup.definition.name, {**setup.baseline.values, **values})
    with reserve_ports(setup.port_count) as ports:
        plan = setup.plan(candidate, Place("127.0.0.1", ports.ports[0], ports.ports[1:]))
        plan = replace(plan, env={**plan.env, **env})
        parent = parents.parent_for(plan, setup.definition.warm, run_dir.parent / "warm.log") if parents else None
        with (
            launch(plan, run_dir, holds=ports.locks, warm=parent, shared_temp=setup.definition.shared_temp) as server,
            ControlPlane(plan.base_url, setup.definition) as control,
        ):
            marks, fatal = phase_of_line(plan.engine), is_fatal_line(plan.engine)
            wait_ready(server, partial(has_token, control), marks, PhaseDeadlines.of(600, {}), fatal)
            yield server, control


def has_token(control: ControlPlane) -> bool:
    try:
        control.complete(control.served_model(), "The", max_tokens=1, timeout_s=60.0)
    except NotReadyError:
        return False
    return True


def view(setup: EngineSetup, run_dir: Path, parents: WarmParents | None, **env: str) -> View:
    """Launch, look, end, and see to it that nothing is left."""
    with serving(setup, run_dir, parents, SETTINGS, **env) as (server, control):
        info = control.server_info()
        assert info is not None
        answer = control.complete(control.served_model(), "The", max_tokens=4, timeout_s=60.0)
        seen = View(comparable(info, server), workers_of(server), answer.tokens)
        members = [member.identity for member in server.members()]
        assert any(path.is_socket() for path in scratch_of(server).iterdir()), "its sockets are in a folder of its own"
    assert server.proof is not None
    assert server.proof.is_clean
    assert not any(map(is_alive, members))
    left = {path.name for path in Path(os.environ["TMPDIR"]).iterdir()}
    assert left <= {name.format(user=getpass.getuser()) for name in setup.definition.shared_temp}
    return seen


def scratch_of(server: ServerHandle) -> Path:
    """The launch's own temporary folder."""
    record = LaunchRecord.read(server.run_dir / FILE)
    assert record is not None
    assert record.scratch is not None
    return Path(record.scratch)


def comparable(info: Mapping[str, Any], server: ServerHandle) -> dict[str, str]:
    """Resolved settings, name → value, without what is each launch's own."""
    text = json.dumps(info, sort_keys=True, default=str)
    text = text.replace(str(server.run_dir), "RUN").replace(str(scratch_of(server)), "TMP")
    for port in (server.plan.port, *server.plan.extra_ports):
        text = re.sub(rf"\b{port}\b", "0", text)
    flat: dict[str, str] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(f"{name}.{key}", item)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                walk(f"{name}[{number}]", item)
        elif not _OWN.search(name.lower()) and not _OWN.search(str(value)[:40].lower()):
            flat[name] = str(value)

    walk("", json.loads(text))
    return flat


def workers_of(server: ServerHandle) -> list[tuple[str, ...]]:
    """Of each process that computes: OpenMP libraries, and the cores that each of its OpenMP threads may use."""
    found = []
    for member in server.members():
        if not re.match(r"VLLM::Wor|sglang::sched", member.name):
            continue
        process = Path(f"/proc/{member.pid}")
        libraries = {
            Path(line.split()[-1]).name for line in (process / "maps").read_text().splitlines() if "omp" in line
        }
        cores = [
            next(line for line in (task / "status").read_text().splitlines() if line.startswith("Cpus_allowed_list"))
            for task in (process / "task").iterdir()
            if (task / "comm").read_text().strip() == member.name
        ]
        found.append((*sorted(libraries), *sorted(set(cores))))
    return sorted(found)


@dataclass(frozen=True)
class Plain:
    """A plain launch: what it looked like, and the modules that its processes looked for."""

    view: View
    modules: set[str]


@pytest.fixture(scope="module")
def plain_launch(setup: EngineSetup, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    folder = tmp_path_factory.mktemp("plain")
    log = imported(folder / "imported")
    seen = view(setup, folder / "run", None, PYTHONPATH=str(log))
    return Plain(seen, names(log))


def test_a_warm_server_is_the_one_that_a_plain_launch_gives(
    setup: EngineSetup, parents: WarmParents, plain_launch: Plain, tmp_path: Path
) -> None:
    # The parent is started for the baseline; what follows differs from it.
    assert refused(setup, parents, tmp_path, {}) is None
    plain, warm = plain_launch.view, view(setup, tmp_path / "warm", parents)
    assert len(plain.settings) > 50
    assert "3" in {value for name, value in warm.settings.items() if "max_num_seqs" in name or "max_running" in name}
    assert warm.settings == plain.settings
    assert warm.workers == plain.workers
    assert len(warm.workers) == 1
    assert warm.tokens == plain.tokens == 4


IMPORT_LOG = """\
import os, sys
class Log:
    def find_spec(self, name, path=None, target=None):
        with open(f"{FOLDER}/{os.getpid()}", "a") as log:
            log.write(name + "\\n")
sys.meta_path.insert(0, Log())
"""


def test_the_parent_imports_nothing_of_the_engine_that_a_plain_server_does_not_and_ends_with_its_worker(
    setup: EngineSetup, plain_launch: Plain, tmp_path: Path
) -> None:
    """Modules for another platform may replace parts of torch when they are imported."""
    warm, own = imported(tmp_path / "warm"), WarmParents()
    try:
        assert refused(setup, own, tmp_path, {}, PYTHONPATH=str(warm)) is None
        (parent,) = own._parents.values()
        assert not [name for name in parent.imported.missing if name.startswith(setup.definition.name)]
    finally:
        own.close()
    assert parent.process.poll() is not None
    of_engine = re.compile(rf"{setup.definition.name}\b")
    in_plain, in_parent = ({n for n in found if of_engine.match(n)} for found in (plain_launch.modules, names(warm)))
    assert len(in_parent) > 200
    assert in_parent - in_plain == set()


def imported(folder: Path) -> Path:
    """A folder for PYTHONPATH, in which every process leaves the names of the modules that it looks for."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"FOLDER = {str(folder)!r}\n{IMPORT_LOG}")
    return folder


def names(folder: Path) -> set[str]:
    return {line for file in folder.glob("[0-9]*") for line in file.read_text().splitlines()}


def test_what_is_read_at_import_or_when_a_library_is_loaded_asks_for_a_plain_launch(
    setup: EngineSetup, parents: WarmParents, tmp_path: Path
) -> None:
    for values in ({}, SETTINGS):
        assert refused(setup, parents, tmp_path, values) is None
    for knob in ("at_import", "at_load"):
        name = setup.space.knobs_of(setup.definition.name)[knob].env
        choice = setup.space.knobs_of(setup.definition.name)[knob].grid[-1]
        reason = refused(setup, parents, tmp_path, {knob: choice})
        assert reason is not None
        assert reason.startswith(str(name))


def refused(
    setup: EngineSetup, parents: WarmParents, tmp_path: Path, values: Mapping[str, Any], **env: str
) -> str | None:
    """Why a launch would be plain; None when it would be warm."""
    candidate = Candidate.of(setup.space, setup.definition.name, {**setup.baseline.values, **values})
    plan = setup.plan(candidate, Place("127.0.0.1", 1, tuple(range(2, 1 + setup.port_count))))
    plan = replace(plan, env={**plan.env, **env})
    try:
        parents.parent_for(plan, setup.definition.warm, tmp_path / "warm.log")
    except ColdError as error:
        return str(error)
    return None
