"""Put an all-reduce probe together: this model's messages, this space's NCCL settings, this engine's interpreter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.domain.landing import landing_of
from tuner.domain.launch import LaunchPlan
from tuner.domain.probe import DEFAULT, Backend, MessageSize, ProbeReport, ProbeSetting
from tuner.domain.space import Space
from tuner.domain.values import FlagValue, counted
from tuner.engines.installed import interpreter_of
from tuner.engines.model_shape import ModelShape, model_shape
from tuner.engines.plan import env_text, kept_env, refuse_denied_env
from tuner.engines.signatures import Direction, load_book
from tuner.errors import MachineUnfit, UserError
from tuner.probe.order import Order, Patience, PlannedRun
from tuner.probe.settings import SettingGroups, nccl_knobs, setting_groups
from tuner.probe.watch import RanksWatch
from tuner.trial.assembly import EngineSetup, engine_setup
from tuner.trial.gpu import NvmlProbe, open_nvml
from tuner.trial.hostlocks import lock_gpus
from tuner.trial.machine import machine_facts

USUAL_SECONDS = 120.0
_PREFILL_TOKENS = 8192
"""Where nothing says otherwise: the chunk of both engines on large GPUs."""

_CPU_RANKS = 2
_ROUNDS = 6
# Ranks find each other over loopback, and NCCL says what it dislikes.
_RANK_ENV = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "WARN"}
_KEEPS = ("NCCL_", "TORCH_", "GLOO_")


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What is to be probed.

    Attributes:
        space: names the model, the NCCL knobs and the load levels.
        engine: one of its engines; the ranks run in its interpreter.
        folder: for the probe's files.
        ranks: processes, one per GPU; None takes the space's GPUs.
        seconds: after this long no further run begins.
        seed: of the order of runs.
        patience: when something counts as hung.
    """

    space: Space
    engine: str
    folder: Path
    ranks: int | None = None
    seconds: float = USUAL_SECONDS
    seed: int = 0
    patience: Patience = field(default_factory=Patience)


def run_probe(
    request: ProbeRequest,
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
) -> ProbeReport:
    """Measure the all-reduces of a model under the NCCL settings of a space. Blocks; leaves nothing running.

    Without GPUs the same program runs on the CPU with gloo, and the report says so.

    Args:
        request: what to do.
        is_cancelled: asked twenty times a second; True ends the probe with what it has.
        say: gets a line per run.

    Raises:
        MachineUnfit: engine or GPUs are missing or in use, or the engine's interpreter cannot be found.
        UserError: the model's configuration is not at hand.
    """
    started, began = time.time(), time.monotonic()
    setup = engine_setup(request.space, request.engine)
    probe = open_nvml()
    backend = Backend.GLOO if probe is None else Backend.NCCL
    ranks = _ranks(request, probe)
    shape = model_shape(setup.space.model)
    if shape is None:
        raise UserError(
            f"the probe needs the config.json of {setup.space.model}, to know the size of its messages",
            hint="give a model folder with --model, or download the model first",
        )
    shape = _with_dtype(setup, shape)
    groups = setting_groups(setup.space, request.engine, setup.baseline.values, setup.deny)
    sizes = message_sizes(shape, setup.space.workload.levels, _prefill_tokens(setup))
    order = Order(
        backend=backend,
        ranks=ranks,
        dtype=shape.dtype,
        sizes=tuple(size.size_bytes for size in sizes),
        seconds=request.seconds,
        must_work=DEFAULT,
        runs=tuple(_turns(groups, random.Random(request.seed))),  # noqa: S311 - an order, no secret
    )
    gpus = () if probe is None else tuple(range(ranks))
    plan = _plan(setup, gpus)
    with lock_gpus(gpus) as devices:
        watch = RanksWatch(
            plan=plan,
            folder=request.folder.absolute(),
            holds=devices.locks,
            gpus=probe,
            patience=request.patience,
            is_cancelled=is_cancelled,
            say=say,
        )
        seen = watch.carry_out(order)
    return ProbeReport(
        engine=request.engine,
        backend=backend,
        ranks=ranks,
        dtype=shape.dtype,
        layers=shape.layers,
        sizes=sizes,
        settings=groups.all,
        runs=tuple(seen.runs),
        failures=tuple(seen.failures),
        own_up_to_bytes=_own_up_to(setup, ranks) if backend is Backend.NCCL else None,
        library=seen.library,
        started_at=started,
        seconds=time.monotonic() - began,
    )


def message_sizes(shape: ModelShape, levels: Sequence[int], prefill_tokens: int) -> tuple[MessageSize, ...]:
    """The all-reduces of a model: one vector per request in a decode step, one per token in a prefill chunk."""
    decode = [MessageSize(shape.token_bytes * batch, f"decode at C={batch}") for batch in sorted({1, *levels})]
    prefill = MessageSize(shape.token_bytes * prefill_tokens, f"prefill of {prefill_tokens} tokens", decode=False)
    known = {size.size_bytes for size in decode}
    return tuple(decode) if prefill.size_bytes in known else (*decode, prefill)


def _ranks(request: ProbeRequest, probe: NvmlProbe | None) -> int:
    wanted = request.ranks or request.space.hardware.gpus
    if probe is None:
        return wanted or _CPU_RANKS
    wanted = wanted or probe.count
    if wanted > probe.count:
        raise MachineUnfit(
            f"the probe wants {counted(wanted, 'GPU')}, this machine has {probe.count}", hint="give another --tp"
        )
    return wanted


def _setting_of(setup: EngineSetup, role: str) -> FlagValue:
    """What the baseline says about a role of the engine's settings (`batched-tokens`, `dtype`), by flag or knob."""
    names = load_book(setup.definition.name).settings_of({role: Direction.CHANGE})
    for name, value in setup.baseline.flags.items():
        if name in names and value is not None:
            return value
    for name, knob in setup.space.knobs_of(setup.definition.name).items():
        value = setup.baseline.values.get(name)
        if knob.flag in names and knob.key is None and value is not None:
            return value
    return None


def _prefill_tokens(setup: EngineSetup) -> int:
    value = _setting_of(setup, "batched-tokens")
    return value if isinstance(value, int) and value > 0 else _PREFILL_TOKENS


def _with_dtype(setup: EngineSetup, shape: ModelShape) -> ModelShape:
    value = _setting_of(setup, "dtype")
    if not isinstance(value, str) or value == "auto":
        return shape
    return ModelShape(shape.hidden_size, value, shape.layers)


def _gives(setup: EngineSetup, switch: str) -> bool:
    """Whether the baseline's command line has a switch, in whichever spelling."""
    for name, knob in setup.space.knobs_of(setup.definition.name).items():
        if landing_of(knob, setup.catalogue).name == switch:
            value = setup.baseline_candidate.values.get(name)
            return value is not None and knob.given(value) is True
    fixed = setup.baseline.flags.items()
    return any(value is True for flag, value in fixed if setup.catalogue.canonical(flag) == switch)


def _own_up_to(setup: EngineSetup, ranks: int) -> int:
    """Bytes up to which the engine's own all-reduce serves in the baseline."""
    own = setup.definition.own_all_reduce
    if own is None or _gives(setup, own.switch):
        return 0
    links = machine_facts().links
    pairs = [links.get(f"{a}-{b}") for a in range(ranks) for b in range(a + 1, ranks)]
    return own.reaches(ranks, nvlink=bool(pairs) and all(link == "NVLink" for link in pairs))


def _plan(setup: EngineSetup, gpus: tuple[int, ...]) -> LaunchPlan:
    """The launch of the ranks' parent; it listens nowhere. Only collectives' variables of the space go with it."""
    python = interpreter_of(setup.installed.program[0])
    if python is None:
        raise MachineUnfit(
            f"no Python interpreter beside {setup.installed.program[0]}, and the probe needs the engine's own",
            hint="set engines.NAME.command in the space file to a program of the engine's environment",
        )
    definition, engine = setup.definition, setup.definition.name
    knobs = {knob.env for knob in nccl_knobs(setup.space, engine).values()}
    fixed = {**definition.env, **{name: env_text(value) for name, value in setup.baseline.env.items()}}
    env = {name: text for name, text in fixed.items() if name.startswith(_KEEPS) and name not in knobs}
    refuse_denied_env(setup.deny, env)
    return LaunchPlan(
        engine=engine,
        argv=(python,),
        env={**_RANK_ENV, **env, **kept_env(setup.deny, env, gpus=True)},
        host="127.0.0.1",
        port=0,
        pass_env=definition.pass_env,
        gpus=gpus,
        model=setup.space.model,
        engine_version=setup.installed.version,
    )


def _turns(groups: SettingGroups, rng: random.Random) -> Iterator[PlannedRun]:
    """Settings in rounds of random order, so that what drifts hits all alike; the default has two turns a round.

    Each setting alone comes first, twice; then pairs; then all again for as long as there is time.
    """
    default, *alone = groups.single
    pairs = list(groups.pairs)
    rounds = [alone, alone, pairs, pairs, *([[*alone, *pairs]] * (_ROUNDS - 4))]
    turns: list[ProbeSetting] = []
    for members in rounds:
        shuffled = rng.sample(members, len(members))
        half = len(shuffled) // 2
        turns += [default, *shuffled[:half], default, *shuffled[half:]]
    for number, setting in enumerate(turns):
        yield PlannedRun(number, setting.label, setting.env, optional=number > 0)
