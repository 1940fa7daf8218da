"""Times all-reduces under one environment after another. Runs in an engine's own interpreter, by path:

    python ranks.py ORDER RESULTS

It needs torch and nothing of tuner. torch is imported once, before any GPU is touched; for each run the ranks are
forked from here, since NCCL reads its variables once per process. ORDER is a JSON file (`Order` in
`tuner/probe/order.py`); RESULTS gets one JSON line per run that completed. Standard output tells where it is:
`probe: ready`, `probe: run 3 begins`, `probe: run 3 ended with 0`, `probe: done`. A rank that hangs is left hanging:
whoever watches takes evidence and ends the whole session.

Engines replay their all-reduces from CUDA graphs, so here they are captured too; on a CPU there is nothing to capture.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Bytes up to which a graph holds so many all-reduces: together they take milliseconds, far above a timer's grain.
CALLS = ((256 << 10, 50), (4 << 20, 10), (1 << 62, 4))
CPU_SHARE = 5
SAMPLES = 15
WARM_UPS = 3
LAST_WORDS_S = 2.0
WRONG_SUM = 3


def say(text: str) -> None:
    """One line for whoever watches."""
    sys.stdout.write(f"probe: {text}\n")
    sys.stdout.flush()


def calls_of(size: int, backend: str) -> int:
    """All-reduces per sample; fewer on a CPU, where each takes longer."""
    calls = next(count for limit, count in CALLS if size <= limit)
    return calls if backend == "nccl" else max(1, calls // CPU_SHARE)


class Rank:
    """One process of a run; made once its first collectives are done."""

    def __init__(self, order: dict[str, Any], run: dict[str, Any], number: int) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        self.number, self.world, self.backend = number, order["ranks"], order["backend"]
        self.device = torch.device("cuda", number) if self.backend == "nccl" else torch.device("cpu")
        self.dtype = getattr(torch, order["dtype"])
        if self.backend == "nccl":
            torch.cuda.set_device(self.device)
        began = time.monotonic()
        self.store = dist.FileStore(run["store"], self.world)
        dist.init_process_group(self.backend, store=self.store, rank=number, world_size=self.world)
        self.prove_others()
        self.settle()
        self.init_s = time.monotonic() - began

    def prove_others(self) -> None:
        """The collectives that engines need beside all-reduce: a setting that forbids one cannot serve."""
        small = self.torch.ones(1024, dtype=self.dtype, device=self.device)
        self.dist.broadcast(small, src=0)
        gathered = [self.torch.empty_like(small) for _ in range(self.world)]
        self.dist.all_gather(gathered, small)

    def settle(self) -> None:
        """Wait until everything that was asked of the GPU is done."""
        if self.backend == "nccl":
            self.torch.cuda.synchronize()

    def is_right(self, size: int) -> bool:
        """Whether every number of a sum is what it must be."""
        numbers = self.numbers(size).fill_(self.number + 1)
        self.dist.all_reduce(numbers)
        return bool((numbers == self.world * (self.world + 1) // 2).all())

    def numbers(self, size: int) -> Any:
        """Zeros of so many bytes: their sums stay zero however often they are added."""
        element = self.torch.empty((), dtype=self.dtype).element_size()
        return self.torch.zeros(max(1, size // element), dtype=self.dtype, device=self.device)

    def times_us(self, size: int) -> list[float]:
        """Microseconds per all-reduce, one value per sample."""
        numbers, calls = self.numbers(size), calls_of(size, self.backend)
        return self.replayed(numbers, calls) if self.backend == "nccl" else self.called(numbers, calls)

    def replayed(self, numbers: Any, calls: int) -> list[float]:
        """Times of a captured graph, by the GPU's clock."""
        cuda = self.torch.cuda
        for _ in range(WARM_UPS):
            self.dist.all_reduce(numbers)
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(calls):
                self.dist.all_reduce(numbers)
        for _ in range(WARM_UPS):
            graph.replay()
        cuda.synchronize()
        found = []
        for _ in range(SAMPLES):
            before, after = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            before.record()
            graph.replay()
            after.record()
            after.synchronize()
            found.append(before.elapsed_time(after) * 1000 / calls)
        return found

    def called(self, numbers: Any, calls: int) -> list[float]:
        """Times of plain calls, by the wall clock."""
        found = []
        for sample in range(WARM_UPS + SAMPLES):
            before = time.perf_counter()
            for _ in range(calls):
                self.dist.all_reduce(numbers)
            if sample >= WARM_UPS:
                found.append((time.perf_counter() - before) * 1e6 / calls)
        return found

    def library(self) -> str | None:
        """Version of NCCL."""
        return ".".join(map(str, self.torch.cuda.nccl.version())) if self.backend == "nccl" else None

    def wait_for_all(self) -> None:
        """Nobody leaves while another still reads from its memory."""
        self.store.add("done", 1)
        while self.store.add("done", 0) < self.world:
            time.sleep(0.001)


def run_rank(order: dict[str, Any], run: dict[str, Any], number: int, results: str) -> int:
    """Everything that one rank does; returns its exit code."""
    os.environ.update(run["env"])
    rank = Rank(order, run, number)
    times = {}
    for size in order["sizes"]:
        if not rank.is_right(size):
            say(f"the sum of {size} bytes is wrong")
            return WRONG_SUM
        times[str(size)] = [round(value, 3) for value in rank.times_us(size)]
    rank.settle()
    if number == 0:
        line = {"run": run["number"], "times_us": times, "init_s": rank.init_s, "library": rank.library()}
        with Path(results).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    rank.wait_for_all()
    return 0


def fork_rank(order: dict[str, Any], run: dict[str, Any], number: int, results: str) -> int:
    """Process id of a new rank."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = run_rank(order, run, number, results)
    except BaseException:  # noqa: BLE001 - nothing of the parent may run on in this process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not through the destructors of torch and NCCL, which may wait for ranks that are gone.
        os._exit(code)


def wait_for(ranks: Sequence[int]) -> int:
    """0 when all ended well, else the code of the first that did not; the others are ended a moment later."""
    left, code, deadline = set(ranks), 0, float("inf")
    while left:
        pid, status = os.waitpid(-1, os.WNOHANG if code else 0)
        left.discard(pid)
        ended = os.waitstatus_to_exitcode(status)
        if pid and ended and not code:
            code, deadline = ended, time.monotonic() + LAST_WORDS_S
        if time.monotonic() > deadline:
            for other in left:
                os.kill(other, signal.SIGKILL)
            deadline = float("inf")
        elif code:
            time.sleep(0.02)
    return code


def main(order_file: str, results: str) -> int:
    """Do what the order says."""
    order = json.loads(Path(order_file).read_text(encoding="utf-8"))
    say("importing torch")
    import torch.distributed

    if not torch.distributed.is_available():
        say("this torch has no collectives")
        return 1
    say("ready")
    began = time.monotonic()
    failed: set[str] = set()
    worked = False
    for run in order["runs"]:
        late = run["optional"] and time.monotonic() - began > order["seconds"]
        if late or run["setting"] in failed:
            continue
        if order["must_work"] in failed and not worked:
            break
        say(f"run {run['number']} begins")
        ranks = [fork_rank(order, run, number, results) for number in range(order["ranks"])]
        code = wait_for(ranks)
        say(f"run {run['number']} ended with {code}")
        if code:
            failed.add(run["setting"])
        worked = worked or (code == 0 and run["setting"] == order["must_work"])
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
