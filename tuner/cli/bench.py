"""`tuner bench`: measure any running OpenAI-compatible server with the instrument that studies use."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.options import JsonOption
from tuner.cli.output import console, out, print_json
from tuner.cli.wording import SIMULATED
from tuner.errors import UsageError, UserError

if TYPE_CHECKING:
    from tuner.domain.measurement import LevelResult, Metric
    from tuner.domain.workload import Workload
    from tuner.trial.protocol import LevelProgress


def bench(
    url: Annotated[str, typer.Argument(help="Server address: http://HOST:PORT", show_default=False)],
    model: Annotated[
        str | None, typer.Option(help="Name the server knows the model by. [default: its first one]")
    ] = None,
    levels: Annotated[str, typer.Option(help="Concurrency levels.")] = "1,8,32,128",
    rates: Annotated[str, typer.Option(help="Open-loop arrival rates in requests/s, measured after the levels.")] = "",
    arrivals: Annotated[str, typer.Option(help="Spacing of open-loop arrivals: poisson or constant.")] = "poisson",
    input_tokens: Annotated[int, typer.Option(help="Prompt length in tokens.")] = 512,
    output_tokens: Annotated[int, typer.Option(help="Answer length in tokens.")] = 128,
    repeats: Annotated[int, typer.Option(help="Runs per level.")] = 2,
    requests_per_slot: Annotated[int, typer.Option(help="Counted requests per level and slot.")] = 2,
    precision: Annotated[
        float, typer.Option(help="Wanted half-width of the 95 % interval of single-stream decode speed, as a share.")
    ] = 0.005,
    warmup: Annotated[int, typer.Option(help="Most warm-up requests; fewer when speed is steady.")] = 12,
    api: Annotated[str, typer.Option(help="completions or chat.")] = "completions",
    tokenizer: Annotated[
        str | None, typer.Option(help="Model folder or tokenizer.json, for exact prompt lengths as text.")
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="Prompts from a file: .json as ShareGPT has it, or .jsonl.", show_default=False)
    ] = None,
    shared_prefix: Annotated[int, typer.Option(help="Tokens that all prompts begin with alike.")] = 0,
    turns: Annotated[int, typer.Option(help="Requests per conversation.")] = 1,
    timeout: Annotated[float, typer.Option(help="Seconds without a token after which a request fails.")] = 120.0,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the prompts. [default: a new one, so that no cache helps]")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Name of the environment variable that holds the API key.", show_default=False)
    ] = None,
    raw: Annotated[Path | None, typer.Option(help="Folder for every request's raw record.", show_default=False)] = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="One CSV row per level and metric.")] = False,
    as_parquet: Annotated[bool, typer.Option("--parquet", help="The same rows as parquet; needs -o.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. [default: stdout]", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="HTML file for a plot of latency over throughput.", show_default=False)
    ] = None,
) -> None:
    """Measure a running server at several levels of load.

    With --json: one document with `url`, `model`, `simulated`, `seed`, `workload`, and `levels`, each with `level`,
    `rate`, `valid`, `asked`, `completed`, `errors`, `warnings`, `duration_s`, `client_cpu_share`, `client_lag_ms`, and
    `measurements`: rows of `metric`, `unit`, `center`, `low`, `high`, `spread_kind`, `repeats`, `samples`.

    Exit code 1 when a level is invalid (a request failed or came short) or the server went away; what had been measured
    before is still given.
    """
    from tuner.loadgen.ask import served_models, simulated_clock, unreachable
    from tuner.loadgen.target import Target
    from tuner.trial.protocol import MeasurementFailed, measure

    if sum((as_json, as_csv, as_parquet)) > 1:
        raise UsageError("choose one of --json, --csv, --parquet")
    if as_parquet and output is None:
        raise UsageError("--parquet needs a file", hint="say which with -o")
    workload = _workload(
        levels=_ints(levels, "--levels"),
        rates=_floats(rates, "--rates"),
        arrivals=arrivals,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        repeats=repeats,
        requests_per_slot=requests_per_slot,
        precision=precision,
        warmup_requests=warmup,
        api=api,
        tokenizer=tokenizer,
        request_timeout_s=timeout,
        **_shape(dataset, shared_prefix, turns),
    )
    headers = _headers(api_key_env)
    target = Target.parse(url, headers)
    name = model or next(iter(served_models(target)), None)
    if name is None:
        if (reason := unreachable(target)) is not None:
            raise UserError(f"nobody answers at {url}: {reason}", hint="is the server running, and is the port right?")
        raise UsageError(f"{url} does not say which models it serves", hint="give --model, and check the address")
    clock = simulated_clock(target)
    chosen_seed = seed if seed is not None else int.from_bytes(os.urandom(4), "big")
    failed: MeasurementFailed | None = None
    with _view() as show:
        try:
            found = measure(
                url,
                name,
                workload,
                seed=chosen_seed,
                time_scale=clock or 1.0,
                on_progress=show,
                raw_dir=raw,
                keep_invalid=True,
                headers=headers,
            )
        except MeasurementFailed as error:
            failed, found = error, error.levels
    if failed is not None and not found:
        raise failed
    if as_json or as_csv or as_parquet:
        told = {"url": url, "model": name, "simulated": clock is not None, "seed": chosen_seed}
        _write(found, output, workload, told, form=(as_json, as_csv))
    else:
        _print_table(found)
    if clock is not None:
        console().print(f"{SIMULATED}: the numbers of a performance model, in its own seconds", style="yellow")
    if plot is not None:
        from tuner.export.bench import write_plot

        write_plot(found, plot, f"{name} at {url}")
    if failed is not None:
        raise failed
    if not all(level.valid for level in found):
        raise typer.Exit(1)


def _ints(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(f"{option} {text}: expected whole numbers with commas between them") from None


def _floats(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(f"{option} {text}: expected numbers with commas between them") from None


def _shape(dataset: Path | None, shared_prefix: int, turns: int) -> dict[str, Any]:
    """The workload's `shape`, from the options of which at most one may be given."""
    shapes: list[dict[str, Any]] = []
    if dataset is not None:
        shapes.append({"kind": "jsonl" if dataset.suffix == ".jsonl" else "sharegpt", "path": str(dataset)})
    if shared_prefix:
        shapes.append({"kind": "shared_prefix", "prefix_tokens": shared_prefix})
    if turns > 1:
        shapes.append({"kind": "multi_turn", "turns": turns})
    if len(shapes) > 1:
        raise UsageError("choose one of --dataset, --shared-prefix, --turns")
    return {"shape": shapes[0]} if shapes else {}


def _workload(**fields: Any) -> Workload:
    from pydantic import ValidationError

    from tuner.domain.workload import Workload

    try:
        return Workload(**fields)
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}".removeprefix(": ") for e in error.errors())
        raise UsageError(f"the workload is not valid: {said}") from None


def _headers(api_key_env: str | None) -> tuple[tuple[str, str], ...]:
    if api_key_env is None:
        return ()
    key = os.environ.get(api_key_env)
    if not key:
        raise UsageError(f"the environment variable {api_key_env} is not set")
    return (("Authorization", f"Bearer {key}"),)


@contextmanager
def _view() -> Iterator[Callable[[LevelProgress], None]]:
    """One line that is redrawn on a terminal; elsewhere one line per part. The load runs in other processes."""
    if console().is_terminal:
        with console().status("asking the server …") as status:
            yield lambda progress: status.update(str(progress))
        return
    seen: set[tuple[object, ...]] = set()

    def line(progress: LevelProgress) -> None:
        part = (progress.stage, progress.level, progress.rate, progress.repeat)
        if part not in seen:
            seen.add(part)
            console().print(str(progress), markup=False)

    yield line


def _write(
    levels: Sequence[LevelResult],
    output: Path | None,
    workload: Workload,
    told: dict[str, Any],
    *,
    form: tuple[bool, bool],
) -> None:
    as_json, as_csv = form
    if as_json:
        document = {
            **told,
            "workload": workload.model_dump(mode="json"),
            "levels": [_level_document(level) for level in levels],
        }
        if output is None:
            print_json(document)
        else:
            import json

            output.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    elif as_csv:
        from tuner.export.bench import bench_csv

        text = bench_csv(levels)
        if output is None:
            sys.stdout.write(text)
        else:
            output.write_text(text, encoding="utf-8")
    else:
        from tuner.export.bench import write_parquet

        assert output is not None
        write_parquet(levels, output)


def _level_document(level: LevelResult) -> dict[str, Any]:
    document = asdict(level) | {"valid": level.valid}
    for row, found in zip(document["measurements"], level.measurements, strict=True):
        row["unit"] = found.metric.unit
    return document


def _print_table(levels: Sequence[LevelResult]) -> None:
    from rich.table import Table

    from tuner.domain.measurement import Metric
    from tuner.domain.warnings import WarningCode

    shown = (
        ("tok/s", Metric.OUTPUT_TOK_S),
        ("decode tok/s", Metric.DECODE_TOK_S),
        ("TTFT p50 ms", Metric.TTFT_P50_MS),
        ("p99", Metric.TTFT_P99_MS),
        ("ITL p50 ms", Metric.ITL_P50_MS),
        ("p99", Metric.ITL_P99_MS),
        ("TPOT p50 ms", Metric.TPOT_P50_MS),
    )
    table = Table()
    for title in ("load", *(title for title, _ in shown), "requests"):
        table.add_column(title, justify="left" if title == "load" else "right")
    for level in levels:
        cells = [_cell(level, metric) for _, metric in shown]
        table.add_row(_load(level), *cells, f"{level.completed}/{level.asked}", style=None if level.valid else "red")
    out().print(table)
    for level in levels:
        for text, number in level.errors.items():
            console().print(f"{_load(level)}: {number} × {text}", style="red", markup=False)
    for code in dict.fromkeys(code for level in levels for code in level.warnings):
        where = ", ".join(_load(level) for level in levels if code in level.warnings)
        console().print(f"{where}: {WarningCode(code).words}", style="yellow", markup=False)
    console().print("± is the 95 % interval within this launch; another launch may differ by more", markup=False)


def _load(level: LevelResult) -> str:
    return f"C={level.level}" if level.rate is None else f"{level.rate:g} req/s"


def _cell(level: LevelResult, metric: Metric) -> str:
    row = next((m for m in level.measurements if m.metric is metric), None)
    if row is None:
        return "–"
    if row.low is None or row.high is None:
        return f"{row.center:.4g}"
    return f"{row.center:.4g} ±{(row.high - row.low) / 2 / row.center:.0%}" if row.center else "0"
