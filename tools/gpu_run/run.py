"""The whole product on real GPUs: doctor, probe, study, confirm, ablate, report, export, the exported server again.

    python tools/gpu_run/run.py --work runs/gpu                      # with `tuner` and the engine on PATH
    python tools/gpu_run/run.py --work runs/gpu --steps confirm,ablate,report    # some of the steps, on the same study
    python tools/gpu_run/run.py --work runs/gpu --collect results    # small raw results, also while it runs

Every step leaves its output, its exit code and its seconds under the work folder; a step that fails says why, does not
stop those that do not need it, and makes the exit code of the whole 1. Standard library only.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DONE = "done.json"
NAME = "name"
STEPS = "steps.jsonl"
LOCK = "lock"
_PICKS = ("single-stream", "throughput")
_LOG_LIMIT = 2_000_000
_SERVER_START_S = 400.0
_SERIES_S = 7200.0
_OF_THE_STUDY = frozenset({"confirm", "ablate", "knobs", "report", "export"})
STEPS_IN_ORDER = ("machine", "model", "probe", "study", "confirm", "ablate", "knobs", "report", "export")


class Run:
    """One run in one work folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.work: Path = options.work
        self._storage = f"sqlite:///{self.work / 'study.db'}"
        self.has_failed = False
        self._env = {**os.environ, "TUNER_RUNS": str(self.work / "runs"), "TUNER_STORAGE": self._storage}

    def step(self, name: str, command: Sequence[str], *, suffix: str = ".json", timeout_s: float = 120.0) -> bool:
        """Run a command; its standard output goes to NAME.json, the rest to NAME.log."""
        began = time.time()
        with (self.work / f"{name}{suffix}").open("wb") as out, (self.work / f"{name}.log").open("wb") as log:
            try:
                code = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                    env=self._env,
                    timeout=timeout_s,
                    cwd=ROOT,
                    check=False,
                ).returncode
            except (OSError, subprocess.TimeoutExpired) as error:
                log.write(f"{error}\n".encode())
                code = -1
        self._note(name, code, began, self.work / f"{name}.log")
        return code == 0

    def tuner(self, name: str, *arguments: str, suffix: str = ".json", timeout_s: float = 120.0) -> bool:
        """A step that is a `tuner` command."""
        return self.step(name, [self.options.tuner, *arguments], suffix=suffix, timeout_s=timeout_s)

    def _note(self, name: str, code: int, began: float, log: Path) -> None:
        record = {"step": name, "exit_code": code, "began": began, "seconds": round(time.time() - began, 1)}
        with (self.work / STEPS).open("a", encoding="utf-8") as steps:
            steps.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)
        if code:
            self.has_failed = True
            print(f"{name}: {_last_line(log)} (see {log})", file=sys.stderr, flush=True)

    # -- the run ------------------------------------------------------------------------------------------------------

    def machine(self) -> None:
        """What the machine says of itself."""
        self.step("nvidia-smi", ["nvidia-smi", "-q"], suffix=".txt")
        self.step("topology", ["nvidia-smi", "topo", "-m"], suffix=".txt")
        self.tuner("doctor", "doctor", "--json")

    def model(self) -> None:
        """A model folder without weights, unless it is there."""
        if not (self.options.model / "config.json").is_file():
            make = [sys.executable, str(ROOT / "tools" / "make_model.py"), "--size", self.options.size]
            self.step("model", [*make, "-o", str(self.options.model)], suffix=".txt")

    def probe(self) -> None:
        """All-reduces under every NCCL setting of the space."""
        options = self.options
        asked = ["--space", options.space, "--model", str(options.model), "--engine", options.engine]
        asked += _given("--tp", options.gpus)
        self.tuner("probe", "doctor", "--nccl", *asked, "--seconds", options.probe, "--json", timeout_s=600)

    def study(self) -> None:
        """The search, and the confirmation that belongs to it; one that was begun goes on."""
        options = self.options
        budget = ["--trials", str(options.trials), "--timeout", f"{options.minutes:g}m", *options.study_options]
        limit = options.minutes * 60 + 900
        if (self.work / "study.db").is_file():
            self._of_study("study", "resume", *budget, timeout_s=limit)
            return
        asked = ["--space", options.space, "--name", options.name, "--model", str(options.model)]
        asked += ["--engine", options.engine, *_given("--gpus", options.gpus), "--yes"]
        self.tuner("study", "study", "start", *asked, *budget, "--json", timeout_s=limit)

    def confirm(self) -> None:
        """Finalists and baseline again, with so many launches of each."""
        self._of_study("confirm", "confirm", "--top", str(self.options.top), *self._rounds(), timeout_s=_SERIES_S)

    def ablate(self) -> None:
        """What each setting of the winner contributes."""
        trial = _given("--trial", self.options.ablate_trial)
        self._of_study("ablate", "ablate", *trial, *self._rounds(), timeout_s=_SERIES_S)

    def _rounds(self) -> list[str]:
        return ["--launches", str(self.options.launches), "--yes"]

    def _of_study(self, name: str, verb: str, *arguments: str, timeout_s: float) -> None:
        """A step that launches for the study that is there."""
        elsewhere = ["--other-machine"] if self.options.other_machine else []
        self.tuner(name, "study", verb, self.options.name, *arguments, *elsewhere, "--json", timeout_s=timeout_s)

    def knobs(self) -> None:
        """Which of the winner's settings act, by NCCL's own log."""
        self._of_study("verify-knobs", "verify-knobs", timeout_s=_SERVER_START_S)

    def report(self) -> None:
        """What the study says about itself; also good while it runs."""
        for name in ("status", "trials", "front", "failures", "importance"):
            self.tuner(name, "study", name, self.options.name, "--json")
        page = str(self.work / "report.html")
        self.tuner("report", "study", "report", self.options.name, "-o", page, suffix=".out")

    def export(self) -> None:
        """Each pick's script, started on its own and measured from outside."""
        for pick in _PICKS:
            self.measure_export(pick)

    def all(self) -> None:
        """The steps that were asked for, in order; those about the study as long as there is one."""
        for name in self.options.steps:
            if name in _OF_THE_STUDY and not (self.work / "study.db").is_file():
                self.has_failed = True
                print(f"{name}: left out, there is no study in {self.work}", file=sys.stderr, flush=True)
            else:
                getattr(self, name)()
        (self.work / DONE).write_text(json.dumps({"finished": time.time()}) + "\n", encoding="utf-8")

    def measure_export(self, pick: str) -> None:
        """Export one pick, start the script on its own, measure it from outside, end it."""
        script = self.work / f"export-{pick}.sh"
        if not self.tuner(
            f"export-{pick}", "export", self.options.name, "--pick", pick, "-o", str(script), suffix=".out"
        ):
            return
        port = _free_port()
        url = f"http://127.0.0.1:{port}"
        began = time.time()
        server_log = self.work / f"exported-{pick}.server.log"
        with server_log.open("wb") as log:
            server = subprocess.Popen(
                ["bash", str(script)],
                stdout=log,
                stderr=log,
                env={**self._env, "PORT": str(port)},
                start_new_session=True,
            )
        try:
            ready = _wait_for_token(url, server)
            self._note(f"exported-{pick}-ready", 0 if ready else 1, began, server_log)
            if ready:
                load = ["--levels", "1,32,128", "--input-tokens", "128", "--output-tokens", "128"]
                self.tuner(f"bench-{pick}", "bench", url, *load, "--json", timeout_s=300)
        finally:
            _end_session(server)

    # -- the results --------------------------------------------------------------------------------------------------

    def collect(self, target: Path) -> None:
        """Copy what is small and worth keeping: the study, documents, scripts and server logs, in one archive."""
        target.mkdir(parents=True, exist_ok=True)
        if not (self.work / DONE).is_file():
            self.report()
        chosen = {path.relative_to(self.work): path for path in self.work.iterdir() if path.is_file()}
        staging = target / "gpu-run"
        for name, path in (chosen | self._of_launches()).items():
            if name.name.startswith("study.db"):
                continue
            copy = staging / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(_shortened(path))
        with (
            closing(sqlite3.connect(self.work / "study.db")) as live,
            closing(sqlite3.connect(staging / "study.db")) as kept,
        ):
            live.backup(kept)
        shutil.make_archive(str(target / "gpu-run"), "gztar", root_dir=target, base_dir="gpu-run")
        shutil.rmtree(staging)
        print(target / "gpu-run.tar.gz")

    def _of_launches(self) -> dict[Path, Path]:
        """Name in the archive → file: documents, script and log of every launch.

        They lie in the work folder; those of a study that was begun with a relative folder lie where it was begun.
        """
        base = self.work if (self.work / "runs").is_dir() else ROOT
        folders = [plan.parent for plan in (base / "runs" / self.options.name).rglob("plan.json")]
        files = [
            path for folder in folders for path in (*folder.glob("*.json"), folder / "launch.sh", folder / "server.log")
        ]
        return {path.relative_to(base): path for path in files if path.is_file() and path.stat().st_size < _LOG_LIMIT}


def _last_line(log: Path) -> str:
    """What a program said last; of tuner, that is why it ended, and below it what to do."""
    said = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").split("\n") if line.strip()]
    if len(said) > 1 and said[-1].startswith("→"):
        return " ".join(said[-2:])
    return said[-1] if said else "failed without a word"


def _shortened(path: Path) -> bytes:
    data = path.read_bytes()
    if len(data) <= _LOG_LIMIT:
        return data
    return data[: _LOG_LIMIT // 2] + b"\n[...]\n" + data[-_LOG_LIMIT // 2 :]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_for_token(url: str, server: subprocess.Popen[bytes]) -> bool:
    """Whether the server generated a token before it died or took too long."""
    deadline = time.monotonic() + _SERVER_START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as answer:
                model = json.load(answer)["data"][0]["id"]
            body = json.dumps({"model": model, "prompt": "The", "max_tokens": 1}).encode()
            request = urllib.request.Request(
                f"{url}/v1/completions", data=body, headers={"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=60):
                return True
        except (OSError, urllib.error.URLError, ValueError, KeyError, IndexError):
            time.sleep(0.5)
    return False


def _end_session(server: subprocess.Popen[bytes]) -> None:
    """SIGTERM and, after a grace period, SIGKILL to the session that was started for this server."""
    for number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(server.pid, number)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and _group_lives(server.pid):
            server.poll()
            time.sleep(0.2)
    server.wait()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _given(option: str, value: object) -> list[str]:
    return [] if value is None else [option, str(value)]


def _steps(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(STEPS_IN_ORDER):
        raise argparse.ArgumentTypeError(f"no such step: {', '.join(sorted(unknown))}")
    return [name for name in STEPS_IN_ORDER if name in names]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=_folder, default="runs/gpu", help="folder for everything that is made")
    parser.add_argument("--tuner", default="tuner", help="the program to call")
    parser.add_argument("--name", help="of the study; default that of the work folder, else gpu")
    parser.add_argument("--space", default="h200-x2.yaml")
    parser.add_argument("--engine", default="vllm", help="which engine of the space")
    parser.add_argument("--gpus", type=int, help="GPUs per launch instead of the space's")
    parser.add_argument("--model", type=_folder, default=str(ROOT / ".cache" / "models" / "8b"))
    parser.add_argument("--size", default="8b", help="shape of the model that is made where there is none")
    parser.add_argument("--probe", default="120s", help="begin no all-reduce run after this long")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=60.0, help="limit of the study itself")
    parser.add_argument("--top", type=int, default=1, help="finalists to confirm")
    parser.add_argument("--launches", type=int, default=4, help="of each configuration that is confirmed or ablated")
    parser.add_argument("--ablate-trial", type=int, help="the trial to take apart instead of the confirmed one")
    parser.add_argument("--other-machine", action="store_true", help="go on with a study that began on another machine")
    parser.add_argument(
        "--steps", type=_steps, default=list(STEPS_IN_ORDER), help=f"of {','.join(STEPS_IN_ORDER)}; default all"
    )
    parser.add_argument(
        "--collect", type=_folder, metavar="FOLDER", help="only gather the results of a run into a folder"
    )
    parser.add_argument(
        "study_options", nargs="*", help="after --: further options of `tuner study start` and `resume`"
    )
    return parser.parse_args()


def _folder(text: str) -> Path:
    return Path(text).resolve()


def main() -> int:
    """Run or collect; 1 when a step failed."""
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    named = options.work / NAME
    options.name = options.name or (named.read_text(encoding="utf-8").strip() if named.is_file() else "gpu")
    run = Run(options)
    if options.collect is not None:
        run.collect(options.collect)
        return 0
    # Held until this process ends: two runs on the same GPUs would spoil each other's measurements.
    held = (options.work / LOCK).open("w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"a run goes on in {options.work}: wait until {DONE} is there", file=sys.stderr)
        return 1
    (options.work / DONE).unlink(missing_ok=True)
    (options.work / "pid").write_text(f"{os.getpid()}\n", encoding="utf-8")
    named.write_text(f"{options.name}\n", encoding="utf-8")
    run.all()
    return 1 if run.has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
