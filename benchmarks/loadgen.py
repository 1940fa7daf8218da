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
from statistics import median
from typing import Any

from benchmarks.command_line import end_with, load_levels
from benchmarks.loadgen_clients import CLIENTS, MODEL, TOKENS, Report, installed
from benchmarks.wakeup import wakeup_cost_us
from tools.engines.setup import CHECKOUT
from tuner.trial.statistics import quantile

TTFT_MS, ITL_MS = 50.0, 10.0
PEERS = tuple(name for name in CLIENTS if name != "tuner")
LIMIT_S = 300


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
    server_unread_p99_ms: float


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
        server_unread_p99_ms=round(quantile([entry["unread_ms"] for entry in inside], 0.99), 3),
    )


def show(name: str, level: int, row: Row, startup_s: float) -> None:
    """One line of the table."""
    itl = "–" if row.itl_p99_error_ms is None else f"{row.itl_p99_error_ms:+.2f}"
    print(
        f"{name:9} {level:>4} {row.ttft_p50_error_ms:>+9.2f} {row.ttft_p99_error_ms:>+9.2f} {itl:>9} "
        f"{row.tok_s_error_pct:>+8.2f} {row.cpu_us_per_chunk or 0:>9.1f} {row.command_cpu_s:>7.1f} {startup_s:>8.2f}   "
        f"{row.server_ttft_p50_ms:.1f} / {row.server_ttft_p99_ms:.1f} / {row.server_itl_p99_ms:.1f} / "
        f"{row.server_unread_p99_ms:.2f}",
        flush=True,
    )


def main() -> None:
    """Run every client at every level and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", type=load_levels, default="1,32,128,256,512", help="requests in flight")
    parser.add_argument("--peers", default=",".join(PEERS), help="none for ours alone")
    parser.add_argument("--priority", type=int, default=0, help="nice value of server and clients alike")
    chosen = parser.parse_args()
    raise_priority(chosen.priority)
    wanted = [name for name in chosen.peers.split(",") if name and name != "none"]
    peers = [name for name in wanted if installed(name)]
    for name in set(wanted) - set(peers):
        print(f"{name} is not installed: left out")
    if peers and not (MODEL / "tokenizer.json").is_file():
        subprocess.run(
            [sys.executable, "tools/make_model.py", "--size", "tiny", "-o", str(MODEL)], cwd=CHECKOUT, check=True
        )
    cores = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    print(f"{cores}, load {os.getloadavg()[0]:.1f}, a wake-up costs {wakeup_cost_us():.0f} µs CPU")
    print("errors: client minus server; CPU per chunk: ours in the timed part, peers' over the whole command")
    print(
        "client       C  TTFT p50       p99   ITL p99  tok/s %  µs/chunk   CPU s  start s   "
        "server: TTFT 50 / 99 / ITL 99 / unread 99"
    )
    rows: dict[str, dict[str, Any]] = {name: {} for name in ("tuner", *peers)}
    startups: dict[str, list[float]] = {name: [] for name in rows}
    with server() as target:
        for level in chosen.levels:
            for name in rows:
                try:
                    run = run_client(name, level, target)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    print(f"{name} at C={level} failed: {error}", flush=True)
                    continue
                row = compare(run, level)
                show(name, level, row, run.startup_s)
                rows[name][f"c{level}"] = asdict(row)
                startups[name].append(run.startup_s)
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    for name, found in startups.items():
        rows[name]["startup_s"] = round(median(found), 3) if found else None
    print(json.dumps(rows.pop("tuner") | {"peers": rows}))
    if len(startups["tuner"]) < len(chosen.levels):
        sys.exit("our own client failed at a level")


if __name__ == "__main__":
    end_with(main)
