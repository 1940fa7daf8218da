"""`tuner bench`: measure any running OpenAI-compatible server with the instrument that studies use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.options import JsonOption
from tuner.cli.output import console
from tuner.cli.wording import SIMULATED
from tuner.errors import UsageError, UserError

if TYPE_CHECKING:
    from tuner.cli.bench_view import Form
    from tuner.loadgen.target import Target


def bench(
    url: Annotated[str, typer.Argument(help="Server address: http://HOST:PORT", show_default=False)],
    model: Annotated[
        str | None, typer.Option(help="Name the server knows the model by. [default: its first one]")
    ] = None,
    levels: Annotated[str, typer.Option(help="Concurrency levels.")] = "1,8,32,128",
    rates: Annotated[str, typer.Option(help="Open-loop arrival rates in requests/s, measured after the levels.")] = "",
    arrivals: Annotated[str, typer.Option(help="Spacing of open-loop arrivals: poisson or constant.")] = "poisson",
    rate_seconds: Annotated[float, typer.Option(help="For how long requests arrive at each rate.")] = 30.0,
    input_tokens: Annotated[int, typer.Option(help="Prompt length in tokens.")] = 512,
    output_tokens: Annotated[int, typer.Option(help="Answer length in tokens.")] = 128,
    input_lengths: Annotated[
        str, typer.Option(help="How prompt lengths spread: kind=lognormal,spread=0.5,min=16,max=4000.")
    ] = "",
    output_lengths: Annotated[str, typer.Option(help="How answer lengths spread, likewise.")] = "",
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
    prefix_groups: Annotated[int, typer.Option(help="Number of different shared prefixes.")] = 1,
    turns: Annotated[int, typer.Option(help="Requests per conversation.")] = 1,
    goodput: Annotated[
        str, typer.Option(help="Limits that a good request keeps: ttft_ms=500,tpot_ms=50,e2e_ms=9000.")
    ] = "",
    timeout: Annotated[float, typer.Option(help="Seconds without a token after which a request fails.")] = 120.0,
    seed: Annotated[
        int | None, typer.Option(help="Seed of prompts and arrivals. [default: a new one, so that no cache helps]")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Name of the environment variable that holds the API key.", show_default=False)
    ] = None,
    raw: Annotated[Path | None, typer.Option(help="Folder for every request's raw record.", show_default=False)] = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="One CSV row per level and metric.")] = False,
    as_parquet: Annotated[bool, typer.Option("--parquet", help="The same rows as parquet; needs -o.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write: .json, .csv or .parquet. [default: stdout]", show_default=False
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="HTML file for a plot of latency over throughput.", show_default=False)
    ] = None,
) -> None:
    """Measure a running server at several levels of load, and at rates of arrivals.

    The keys of the document that --json prints are listed in docs/json.md.

    Exit code 1 when a level is invalid (a request failed or came short) or the server went away; what had been measured
    before is still given.
    """
    from tuner.cli.bench_options import workload_of
    from tuner.cli.bench_view import bench_view, print_levels, write
    from tuner.loadgen.ask import simulated_clock
    from tuner.loadgen.target import Target
    from tuner.trial.protocol import MeasurementFailed, measure

    form = _form(as_json, as_csv, as_parquet, output)
    for file in filter(None, (output, plot)):
        _refuse_unwritable(file)
    chosen_seed = seed if seed is not None else int.from_bytes(os.urandom(4), "big")
    workload = workload_of(
        seed=chosen_seed,
        levels=_ints(levels, "--levels"),
        rates=_floats(rates, "--rates"),
        arrivals=arrivals,
        rate_seconds=rate_seconds,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        input_lengths=_pairs(input_lengths, "--input-lengths"),
        output_lengths=_pairs(output_lengths, "--output-lengths"),
        repeats=repeats,
        requests_per_slot=requests_per_slot,
        precision=precision,
        warmup_requests=warmup,
        api=api,
        tokenizer=tokenizer,
        goodput=_pairs(goodput, "--goodput") or None,
        request_timeout_s=timeout,
        **_shape(dataset, shared_prefix, prefix_groups, turns),
    )
    headers = _headers(api_key_env)
    target = Target.parse(url, headers)
    name = model or _served(target, url)
    clock = simulated_clock(target)
    failed: MeasurementFailed | None = None
    with bench_view() as view:
        try:
            found = measure(
                url,
                name,
                workload,
                seed=chosen_seed,
                time_scale=clock or 1.0,
                on_progress=view.progressed,
                on_level=view.measured,
                raw_dir=raw,
                keep_invalid=True,
                headers=headers,
            )
        except MeasurementFailed as error:
            failed, found = error, error.levels
    if failed is not None and not found:
        raise failed
    if form is not None:
        told = {"url": url, "model": name, "simulated": clock is not None, "seed": chosen_seed}
        write(found, form, output, workload, told)
    else:
        print_levels(found)
    if clock is not None:
        console().print(f"{SIMULATED}: the numbers of a performance model, in its own seconds", style="yellow")
    if plot is not None:
        from tuner.export.bench import write_plot

        write_plot(found, plot, f"{name} at {url}")
    if failed is not None:
        raise failed
    if not all(level.valid for level in found):
        raise typer.Exit(1)


def _served(target: Target, url: str) -> str:
    """The model that a server says it serves."""
    from tuner.loadgen.ask import served_models, unreachable

    if (name := next(iter(served_models(target)), None)) is not None:
        return name
    if (reason := unreachable(target)) is not None:
        raise UserError(f"nobody answers at {url}: {reason}", hint="is the server running, and is the port right?")
    raise UsageError(f"{url} does not say which models it serves", hint="give --model, and check the address")


def _form(as_json: bool, as_csv: bool, as_parquet: bool, output: Path | None) -> Form | None:
    """How to write, by the option or the file's name; None for a table."""
    from tuner.cli.bench_view import Form

    chosen = [form for form, wanted in zip(Form, (as_json, as_csv, as_parquet), strict=True) if wanted]
    if len(chosen) > 1:
        raise UsageError("choose one of --json, --csv, --parquet")
    if chosen == [Form.PARQUET] and output is None:
        raise UsageError("--parquet needs a file", hint="say which with -o")
    if not chosen and output is not None:
        suffix = output.suffix.removeprefix(".")
        if suffix not in list(Form):
            raise UsageError(f"{output}: in which form?", hint="give --json, --csv or --parquet")
        return Form(suffix)
    return chosen[0] if chosen else None


def _refuse_unwritable(file: Path) -> None:
    """Before the measurement, not after it."""
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UserError(f"{file}: cannot be written")


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


def _pairs(text: str, option: str) -> dict[str, str]:
    """`a=1,b=x`, as words: the workload's model reads and judges them."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise UsageError(f"{option} {text}: expected name=value with commas between them")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _shape(dataset: Path | None, shared_prefix: int, prefix_groups: int, turns: int) -> dict[str, Any]:
    """The workload's `shape`, from the options of which at most one may be given."""
    shapes: list[dict[str, Any]] = []
    if dataset is not None:
        shapes.append({"kind": "jsonl" if dataset.suffix == ".jsonl" else "sharegpt", "path": str(dataset)})
    if shared_prefix:
        shapes.append({"kind": "shared_prefix", "prefix_tokens": shared_prefix, "groups": prefix_groups})
    if turns > 1:
        shapes.append({"kind": "multi_turn", "turns": turns})
    if len(shapes) > 1:
        raise UsageError("choose one of --dataset, --shared-prefix, --turns")
    return {"shape": shapes[0]} if shapes else {}


def _headers(api_key_env: str | None) -> tuple[tuple[str, str], ...]:
    if api_key_env is None:
        return ()
    key = os.environ.get(api_key_env)
    if not key:
        raise UsageError(f"the environment variable {api_key_env} is not set")
    return (("Authorization", f"Bearer {key}"),)
