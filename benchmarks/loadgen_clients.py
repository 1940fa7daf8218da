"""The clients that `benchmarks.loadgen` compares: each is a command line and a way to read its report."""

import gzip
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.engines.setup import CHECKOUT
from tuner.loadgen.record import RequestRecord
from tuner.trial.measure_window import steady_window

TOKENS, PROMPT_TOKENS = 128, 32
ENGINES = CHECKOUT / ".engines"
MODEL = CHECKOUT / ".cache" / "models" / "tiny"


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


CLIENTS: dict[str, tuple[Callable[[str, int, Path], list[str]], Callable[[int, Path], Report]]] = {
    "tuner": (ours, read_ours),
    "vllm": (vllm, read_engine_bench),
    "sglang": (sglang, read_engine_bench),
    "aiperf": (aiperf, read_aiperf),
    "guidellm": (guidellm, read_guidellm),
}


def installed(name: str) -> bool:
    """Whether a peer's environment is there."""
    places = {
        "vllm": ENGINES / "vllm" / "bin" / "vllm",
        "sglang": ENGINES / "sglang" / "bin" / "python",
        "aiperf": ENGINES / "peers" / "bin" / "aiperf",
        "guidellm": ENGINES / "peers" / "bin" / "guidellm",
    }
    return name == "tuner" or places[name].exists()
