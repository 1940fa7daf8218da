"""How exact is the load client? Ours beside its peers, against a server whose schedule is known, in one run.

    python -m benchmarks.loadgen [--levels 1,32,128,256,512] [--peers vllm,sglang,aiperf,guidellm] [--priority -10]

Every client is run as a whole command, in a process of its own, against `benchmarks.exact_server`, which logs when it
really wrote each token. What a client reports minus that log is the client's own error. Every client sends 3·C requests
(ten at least) at concurrency C, all slots at once at the start, the hardest case. Peers report over all their requests,
ours over its steady window; each is compared with the server's log of those same requests.

Peers that are not installed are left out (`python -m benchmarks.setup_peers`, `tools/engines/setup.py`).
The last line of the output is one JSON object.
"""

import argparse
import gzip
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.engines.setup import CHECKOUT
from tuner.loadgen.record import RequestRecord
from tuner.trial.measure_window import steady_window
from tuner.trial.statistics import quantile

TTFT_MS, ITL_MS, TOKENS, PROMPT_TOKENS = 50.0, 10.0, 128, 32
ENGINES = CHECKOUT / ".engines"
MODEL = CHECKOUT / ".cache" / "models" / "tiny"
PEERS = ("vllm", "sglang", "aiperf", "guidellm")
LIMIT_S = 300


def requests_for(level: int) -> int:
    """Requests that a client sends at a level."""
    return max(10, 3 * level)


@dataclass(frozen=True)
class Report:
    """What a client says about itself and the server: milliseconds, tokens per second.

    `itl_p99` is missing where a client reports means per request only; `cpu_us_per_chunk` where it reports no CPU.
    """

    ttft_p50: float
    ttft_p99: float
    itl_p99: float | None
    tok_s: float
    window: tuple[float, float] | None = None
    cpu_us_per_chunk: float | None = None


@dataclass(frozen=True)
class Run:
    """One client at one level: its report, the server's log, and what the command cost."""

    report: Report
    log: list[dict[str, Any]]
    command_cpu_s: float
    startup_s: float


@dataclass(frozen=True)
class Row:
    """Errors of one client at one level, in the words of the result."""

    ttft_p50_error_ms: float
    ttft_p99_error_ms: float
    itl_p99_error_ms: float | None
    tok_s_error_pct: float
    cpu_us_per_chunk: float | None
    command_cpu_s: float
    server_ttft_p50_ms: float
    server_ttft_p99_ms: float
    server_itl_p99_ms: float


class Server:
    """The exact server in its own process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "benchmarks.exact_server", "--ttft-ms", str(TTFT_MS), "--itl-ms", str(ITL_MS)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=CHECKOUT)
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{json.loads(self.process.stdout.readline())['port']}"

    def take_log(self) -> list[dict[str, Any]]:
        """The log since the last call, which it then forgets."""
        request = urllib.request.Request(f"{self.url}/log", method="DELETE")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return [json.loads(line) for line in answer.read().splitlines()]

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(10)


def raise_priority(priority: int) -> None:
    """Give this process and all that it starts a scheduling priority: server and clients alike, so that what else runs
    on the machine disturbs neither.

    Linux shares CPU time between sessions first ("autogroup"), so a nice value alone would change nothing.
    """
    if not priority:
        return
    os.setpriority(os.PRIO_PROCESS, 0, priority)
    group = Path("/proc/self/autogroup")
    if group.exists():
        if os.getpid() != os.getsid(0):
            os.setsid()
        group.write_text(str(priority))


@contextmanager
def server() -> Iterator[Server]:
    """A running exact server."""
    running = Server()
    try:
        yield running
    finally:
        running.close()


# -- clients: each is a command line and a way to read its report ----------------------------------------------------


def ours(url: str, level: int, folder: Path) -> list[str]:
    """`tuner bench`, whose window holds two requests per slot after one for ramp-up."""
    words = f"bench {url} --model exact --levels {level} --repeats 1 --requests-per-slot 2 --warmup 1 --json"
    lengths = f"--input-tokens {PROMPT_TOKENS} --output-tokens {TOKENS} --raw {folder} -o {folder / 'report.json'}"
    return [str(Path(sys.executable).with_name("tuner")), *words.split(), *lengths.split()]


def read_ours(level: int, folder: Path) -> Report:
    """Our report, with the window from the raw records."""
    found = json.loads((folder / "report.json").read_text())["levels"][0]
    metrics = {row["metric"]: row["center"] for row in found["measurements"]}
    with gzip.open(folder / f"requests-c{level}-r1.jsonl.gz", "rt") as lines:
        records = [RequestRecord.from_json(line) for line in lines]
    window = steady_window(records) if level > 1 else None
    chunks = sum(len(record.offsets_us) for record in records)
    return Report(
        metrics["ttft_p50_ms"],
        metrics["ttft_p99_ms"],
        metrics["itl_p99_ms"],
        metrics["output_tok_s"],
        (window.start, window.end) if window else (min(r.sent_at for r in records), float("inf")),
        found["client_cpu_share"] * found["duration_s"] * 1e6 / chunks,
    )


def vllm(url: str, level: int, folder: Path) -> list[str]:
    """`vllm bench serve`."""
    words = (
        f"bench serve --backend openai --base-url {url} --model exact --tokenizer {MODEL} --dataset-name random "
        f"--random-input-len {PROMPT_TOKENS} --random-output-len {TOKENS} --disable-tqdm "
        f"--num-prompts {requests_for(level)} --max-concurrency {level} --ignore-eos "
        f"--percentile-metrics ttft,itl --metric-percentiles 50,99 "
        f"--save-result --result-dir {folder} --result-filename report.json"
    )
    return [str(ENGINES / "vllm" / "bin" / "vllm"), *words.split()]


def sglang(url: str, level: int, folder: Path) -> list[str]:
    """`sglang.bench_serving`."""
    words = (
        f"-m sglang.bench_serving --backend sglang-oai --base-url {url} --model {MODEL} --tokenizer {MODEL} "
        f"--dataset-name random-ids --random-input-len {PROMPT_TOKENS} --random-output-len {TOKENS} "
        f"--random-range-ratio 1 --num-prompts {requests_for(level)} --max-concurrency {level} --disable-tqdm "
        f"--output-file {folder / 'report.json'}"
    )
    return [str(ENGINES / "sglang" / "bin" / "python"), *words.split()]


def read_engine_bench(_level: int, folder: Path) -> Report:
    """The result file that both engines' clients write."""
    found = json.loads((folder / "report.json").read_text().splitlines()[-1])
    keys = ("median_ttft_ms", "p99_ttft_ms", "p99_itl_ms", "output_throughput")
    return Report(*(found[key] for key in keys))


def aiperf(url: str, level: int, folder: Path) -> list[str]:
    """aiperf."""
    words = (
        f"profile --model exact --url {url} --endpoint-type completions --streaming --concurrency {level} "
        f"--request-count {requests_for(level)} --synthetic-input-tokens-mean {PROMPT_TOKENS} "
        f"--output-tokens-mean {TOKENS} --tokenizer {MODEL} --artifact-dir {folder} --ui none "
        f"--extra-inputs ignore_eos:true --use-server-token-count"
    )
    return [str(ENGINES / "peers" / "bin" / "aiperf"), *words.split()]


def read_aiperf(_level: int, folder: Path) -> Report:
    """aiperf's JSON export; its inter-token latency is a mean per request."""
    found = json.loads(next(folder.rglob("profile_export_aiperf.json")).read_text())
    ttft = found["time_to_first_token"]
    return Report(ttft["p50"], ttft["p99"], None, found["output_token_throughput"]["avg"])


def guidellm(url: str, level: int, folder: Path) -> list[str]:
    """guidellm."""
    return [
        str(ENGINES / "peers" / "bin" / "guidellm"),
        "run",
        "--backend",
        f"kind=openai_http,target={url},model=exact,request_format=/v1/completions",
        "--tokenizer",
        f"kind=huggingface_auto,model={MODEL}",
        "--profile",
        f"kind=concurrent,streams={level}",
        "--constraint",
        f"kind=max_requests,count={requests_for(level)}",
        "--data",
        f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={TOKENS}",
        "--output",
        f"kind=json,path={folder / 'report.json'}",
        "--disable-console",
    ]


def read_guidellm(_level: int, folder: Path) -> Report:
    """guidellm's JSON; its inter-token latency is a mean per request."""
    metrics = json.loads((folder / "report.json").read_text())["benchmarks"][0]["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]
    return Report(
        ttft["percentiles"]["p50"],
        ttft["percentiles"]["p99"],
        None,
        metrics["output_tokens_per_second"]["successful"]["mean"],
    )


CLIENTS = {
    "tuner": (ours, read_ours),
    "vllm": (vllm, read_engine_bench),
    "sglang": (sglang, read_engine_bench),
    "aiperf": (aiperf, read_aiperf),
    "guidellm": (guidellm, read_guidellm),
}


# -- one run ---------------------------------------------------------------------------------------------------------


def run_client(name: str, level: int, target: Server) -> Run:
    """Run one command against a server with an empty log.

    Raises:
        RuntimeError: when the command fails; the text holds the end of its output.
    """
    command, read = CLIENTS[name]
    target.take_log()
    offline = {} if name == "aiperf" else {"HF_HUB_OFFLINE": "1"}  # aiperf refuses a local tokenizer when offline
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        done = subprocess.run(
            command(target.url, level, folder),
            env=os.environ | offline | {"VLLM_NO_USAGE_STATS": "1", "SGLANG_USE_CPU_ENGINE": "1"},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        log = target.take_log()
        try:
            report = read(level, folder)
        except (OSError, KeyError, ValueError, IndexError, StopIteration) as error:
            words = done.stdout.decode("utf-8", "replace")[-1500:]
            raise RuntimeError(
                f"{name} at C={level} gave no report ({error!r}), exit {done.returncode}:\n{words}"
            ) from error
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(report, log, cpu, min(entry["read_at"] for entry in log) - started)


def compare(run: Run, level: int) -> Row:
    """A client's report minus the server's log of the same requests."""
    start, end = run.report.window or (float("-inf"), float("inf"))
    inside = [entry for entry in run.log if start <= entry["read_at"] < end]
    ttft = [entry["stamps_ms"][0] for entry in inside]
    gaps = [
        later - earlier
        for entry in run.log
        for earlier, later in zip(entry["stamps_ms"], entry["stamps_ms"][1:], strict=False)
        if start < entry["read_at"] + later / 1000 <= end
    ]
    ideal = level * TOKENS / ((TTFT_MS + ITL_MS * (TOKENS - 1)) / 1000)
    itl = run.report.itl_p99
    chunks = sum(len(entry["stamps_ms"]) for entry in run.log)
    own = run.report.cpu_us_per_chunk
    return Row(
        ttft_p50_error_ms=round(run.report.ttft_p50 - quantile(ttft, 0.5), 3),
        ttft_p99_error_ms=round(run.report.ttft_p99 - quantile(ttft, 0.99), 3),
        itl_p99_error_ms=None if itl is None else round(itl - quantile(gaps, 0.99), 3),
        tok_s_error_pct=round(100 * (run.report.tok_s / ideal - 1), 3),
        cpu_us_per_chunk=round(own if own is not None else run.command_cpu_s * 1e6 / chunks, 2),
        command_cpu_s=round(run.command_cpu_s, 2),
        server_ttft_p50_ms=round(quantile(ttft, 0.5), 3),
        server_ttft_p99_ms=round(quantile(ttft, 0.99), 3),
        server_itl_p99_ms=round(quantile(gaps, 0.99), 3),
    )


def installed(name: str) -> bool:
    """Whether a peer's environment is there."""
    places = {
        "vllm": ENGINES / "vllm" / "bin" / "vllm",
        "sglang": ENGINES / "sglang" / "bin" / "python",
        "aiperf": ENGINES / "peers" / "bin" / "aiperf",
        "guidellm": ENGINES / "peers" / "bin" / "guidellm",
    }
    return name == "tuner" or places[name].exists()


def show(name: str, level: int, row: Row, startup_s: float) -> None:
    """One line of the table."""
    itl = "–" if row.itl_p99_error_ms is None else f"{row.itl_p99_error_ms:+.2f}"
    print(
        f"{name:9} {level:>4} {row.ttft_p50_error_ms:>+9.2f} {row.ttft_p99_error_ms:>+9.2f} {itl:>9} "
        f"{row.tok_s_error_pct:>+8.2f} {row.cpu_us_per_chunk or 0:>9.1f} {row.command_cpu_s:>7.1f} {startup_s:>8.2f}   "
        f"{row.server_ttft_p50_ms:.1f} / {row.server_ttft_p99_ms:.1f} / {row.server_itl_p99_ms:.1f}",
        flush=True,
    )


def main() -> None:
    """Run every client at every level and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", default="1,32,128,256,512")
    parser.add_argument("--peers", default=",".join(PEERS), help="none for ours alone")
    parser.add_argument("--priority", type=int, default=0, help="nice value of server and clients alike")
    chosen = parser.parse_args()
    raise_priority(chosen.priority)
    levels = [int(word) for word in chosen.levels.split(",")]
    wanted = [name for name in chosen.peers.split(",") if name and name != "none"]
    peers = [name for name in wanted if installed(name)]
    for name in set(wanted) - set(peers):
        print(f"{name} is not installed: left out")
    if peers and not (MODEL / "tokenizer.json").is_file():
        subprocess.run(
            [sys.executable, "tools/make_model.py", "--size", "tiny", "-o", str(MODEL)], cwd=CHECKOUT, check=True
        )
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("errors: client minus server; CPU per chunk: ours in the timed part, peers' over the whole command")
    print(
        "client       C  TTFT p50       p99   ITL p99  tok/s %  µs/chunk   CPU s  start s   server: TTFT 50 / 99 / ITL"
    )
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    startups: list[float] = []
    with server() as target:
        for level in levels:
            for name in ("tuner", *peers):
                try:
                    run = run_client(name, level, target)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    print(f"{name} at C={level} failed: {error}", flush=True)
                    continue
                row = compare(run, level)
                show(name, level, row, run.startup_s)
                rows.setdefault(name, {})[f"c{level}"] = asdict(row)
                if name == "tuner":
                    startups.append(run.startup_s)
    result = rows.pop("tuner") | {"startup_s": round(sorted(startups)[len(startups) // 2], 3), "peers": rows}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
