"""Does the load client agree with `vllm bench serve` on a real vLLM? Both measure the same launch, in turn.

    python -m benchmarks.agreement [--rounds 4] [--levels 1,16] [--priority -10]

Starts vLLM on the CPU with a model of random weights, then lets both clients measure it several times in alternating
order, after one run at each level that does not count: the first load of a kind is slower, whoever sends it. Two
clients agree when the ranges of their rounds overlap or their medians differ by less than the wider range.
The last line of the output is one JSON object: `{"c16": {metric: {"ours": […], "vllm": […], "agree": …}}}`.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.command_line import end_with, load_levels
from benchmarks.loadgen import raise_priority
from benchmarks.loadgen_clients import ENGINES
from tools.engines.setup import CHECKOUT
from tuner.errors import MachineUnfit

MODEL = CHECKOUT / ".cache" / "models" / "mid"
VLLM = ENGINES / "vllm" / "bin" / "vllm"
PROMPT_TOKENS, TOKENS = 128, 64
READY_LIMIT_S, RUN_LIMIT_S = 300, 300
# Our metric → theirs. Their throughput counts ramp-up and drain, ours the steady window: shown, not judged.
METRICS = {
    "ttft_p50_ms": "median_ttft_ms",
    "tpot_p50_ms": "median_tpot_ms",
    "itl_p50_ms": "median_itl_ms",
    "itl_p99_ms": "p99_itl_ms",
    "output_tok_s": "output_throughput",
}
SHOWN_ONLY = {"output_tok_s"}


@contextmanager
def vllm_server(folder: Path) -> Iterator[str]:
    """A vLLM server on the CPU; its whole process group ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = f"{VLLM} serve {MODEL} --served-model-name {MODEL} --load-format dummy --enforce-eager"
    options = f"--host 127.0.0.1 --port {port} --max-model-len 2048"
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_HOST_IP": "127.0.0.1",
    }
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command.split(), *options.split()],
            env=os.environ | quiet,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url, server, folder / "server.log")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def wait_until_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Until the health page answers; whether tokens come, the clients' own first requests show."""
    limit = time.monotonic() + READY_LIMIT_S
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < limit and server.poll() is None:
        try:
            opener.open(f"{url}/health", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(1)
        else:
            return
    raise SystemExit(f"vLLM did not start:\n{log.read_text(errors='replace')[-3000:]}")


def ours(url: str, level: int, folder: Path) -> dict[str, float]:
    """One run of `tuner bench`."""
    report = folder / "ours.json"
    words = f"bench {url} --model {MODEL} --levels {level} --repeats 1 --json -o {report}"
    lengths = f"--input-tokens {PROMPT_TOKENS} --output-tokens {TOKENS} --warmup 4 --precision 0.02"
    run([str(Path(sys.executable).with_name("tuner")), *words.split(), *lengths.split()])
    rows = json.loads(report.read_text())["levels"][0]["measurements"]
    return {row["metric"]: row["center"] for row in rows if row["metric"] in METRICS}


def theirs(url: str, level: int, folder: Path) -> dict[str, float]:
    """One run of `vllm bench serve`."""
    words = (
        f"bench serve --backend openai --base-url {url} --model {MODEL} --dataset-name random --ignore-eos "
        f"--random-input-len {PROMPT_TOKENS} --random-output-len {TOKENS} --num-prompts {max(10, 3 * level)} "
        f"--max-concurrency {level} --num-warmups 2 --seed {time.time_ns() % 100_000} --disable-tqdm "
        f"--percentile-metrics ttft,tpot,itl --save-result --result-dir {folder} --result-filename theirs.json"
    )
    run([str(VLLM), *words.split()])
    found = json.loads((folder / "theirs.json").read_text())
    return {name: found[their_name] for name, their_name in METRICS.items()}


def run(command: list[str]) -> None:
    """Run a client; its output matters only when it fails."""
    done = subprocess.run(
        command,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=RUN_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command[:2]} failed:\n{done.stdout.decode(errors='replace')[-3000:]}")


def agree(a: list[float], b: list[float]) -> bool:
    """Ranges overlap, or medians are closer than the wider range."""
    overlap = min(max(a), max(b)) >= max(min(a), min(b))
    return overlap or abs(median(a) - median(b)) <= max(max(a) - min(a), max(b) - min(b))


def main() -> None:
    """Measure and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="measurements by each client at each level")
    parser.add_argument("--levels", type=load_levels, default="1,16", help="requests in flight")
    parser.add_argument("--priority", type=int, default=0, help="nice value of server and clients alike")
    chosen = parser.parse_args()
    if not VLLM.is_file():
        raise MachineUnfit(f"there is no vLLM at {VLLM}", hint="make engines")
    raise_priority(chosen.priority)
    if not (MODEL / "config.json").is_file():
        make = [sys.executable, "tools/make_model.py", "--size", "mid", "-o", str(MODEL)]
        subprocess.run(make, cwd=CHECKOUT, check=True)
    result: dict[str, dict[str, dict[str, object]]] = {}
    with tempfile.TemporaryDirectory() as place, vllm_server(Path(place)) as url:
        for level in chosen.levels:
            theirs(url, level, Path(place))
            found: dict[str, list[dict[str, float]]] = {"ours": [], "vllm": []}
            for number in range(chosen.rounds):
                clients = [("ours", ours), ("vllm", theirs)]
                for name, client in clients if number % 2 == 0 else reversed(clients):
                    found[name].append(client(url, level, Path(place)))
            for metric in METRICS:
                a, b = ([round_[metric] for round_ in found[name]] for name in ("ours", "vllm"))
                verdict = None if metric in SHOWN_ONLY else agree(a, b)
                shown = [" ".join(f"{value:.1f}" for value in values) for values in (a, b)]
                word = {None: "", True: "agree", False: "DIFFER"}[verdict]
                print(f"C={level:<3} {metric:13} ours {shown[0]:28} vllm {shown[1]:28} {word}", flush=True)
                result.setdefault(f"c{level}", {})[metric] = {"ours": a, "vllm": b, "agree": verdict}
    print(json.dumps(result))


if __name__ == "__main__":
    end_with(main)
