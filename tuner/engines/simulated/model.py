"""The performance model: how fast settings are, how much fits, and where a launch fails.

One decode step of a batch of B requests costs

    step(B) = (weights(B) + attention(B) + all_reduce(B) + graph(B) + host(B)) * hold(B) * policy * kv_speed

and a request of I prompt and O answer tokens among B equals, all of whom come at once, is answered after

    T(B) = admission + B * I * prefill_per_token + (O - 1) * step(B)

so that a closed loop of C clients sees `B * O / T(B)` output tokens per second, B being what the batch limit and the KV
room leave of C. Prefill is linear in tokens and each step stalls all, so the figure is the same whether requests run in
step with each other or not. The terms are explained in the model's YAML file. A model, not a measurement.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from tuner.engines.simulated.faults import FaultSpecError, parse_fault
from tuner.engines.simulated.flags import build_parser
from tuner.engines.simulated.modelfile import ChannelCurve, Flavor, Pair, Region, SimModel
from tuner.engines.simulated.nccl import AUTO
from tuner.engines.simulated.settings import Settings, resolve
from tuner.errors import UserError


class Speed:
    """The costs of one server's settings, in milliseconds of simulated time.

    Args:
        model: the performance model.
        settings: what acts.
    """

    def __init__(self, model: SimModel, settings: Settings) -> None:
        self._model = model
        self._settings = settings
        self._flavor: Flavor = model.flavors[settings.flavor]
        self._all_reduce, self._prefill_communication = self._all_reduce_cost()
        self.prefill_ms_per_token = self._prefill_ms_per_token()
        self.admission_ms = self._flavor.admission_ms

    def step_ms(self, batch: int) -> float:
        """One decode step of `batch` requests."""
        model, settings = self._model, self._settings
        kv = model.kv_dtypes[settings.kv_dtype]
        backend = model.attention[settings.attention_backend]
        page = model.scheduling.page_sizes[settings.page_size]
        attention = Pair(backend.alone * kv.attention_alone * page.alone, backend.full * kv.attention_full * page.full)
        sum_ms = (
            self._between(self._flavor.weights, batch, power=self._flavor.weights_power)
            + self._between(attention, batch)
            + self._between(self._all_reduce, batch)
            + self._graph_ms(batch)
            + self._host_ms(batch)
        )
        return sum_ms * self._hold(batch) * model.scheduling.policies[settings.schedule_policy] * kv.speed

    def kv_tokens(self) -> int:
        """How many tokens the KV cache holds; negative when the weights alone are too large for the share."""
        memory, kv = self._model.memory, self._model.kv_dtypes[self._settings.kv_dtype]
        return math.floor(self._kv_share() * memory.tokens_per_share * kv.capacity)

    def batch_limit(self, tokens_per_request: int) -> int:
        """Requests that run together, by the batch limit and by the KV room; at least 1."""
        return max(1, min(self._settings.max_running, self.kv_tokens() // tokens_per_request))

    def output_rate(self, concurrency: int, *, input_tokens: int, output_tokens: int) -> float:
        """Output tokens per second of a closed loop of `concurrency` clients, without noise."""
        batch = min(concurrency, self.batch_limit(input_tokens + output_tokens))
        total_ms = (
            self.admission_ms
            + batch * input_tokens * self.prefill_ms_per_token
            + (output_tokens - 1) * self.step_ms(batch)
        )
        return batch * output_tokens / total_ms * 1000.0

    def failing_region(self) -> Region | None:
        """The region that these settings lie in, or None when the server serves."""
        settings, memory = self._settings, self._model.memory
        unsupported = self._model.attention[settings.attention_backend].unsupported
        if unsupported:
            return Region("unsupported-attention", {}, "crash@weights:class=unsupported", unsupported)
        if settings.nccl_error is not None:
            phase = "graph_capture" if settings.nccl_error.at_first_call else "nccl_init"
            return Region("nccl-config", {}, f"crash@{phase}:class=nccl_config", settings.nccl_error.line)
        if self._kv_share() < memory.least_kv_share:
            return Region("kv-too-small", {}, "crash@profile:class=kv_too_small", "the weights leave no room for KV")
        needed = self._memory_needed()
        if needed > memory.limit:
            phase, what = ("graph_capture", "oom_graph") if settings.cuda_graph else ("profile", "oom_weights")
            return Region("out-of-memory", {}, f"crash@{phase}:class={what}", f"{needed:.3f} of the memory is needed")
        if needed > memory.limit - memory.runtime_margin:
            fault = f"crash@serving:class=oom_runtime,running={memory.runtime_running}"
            return Region("out-of-memory-under-load", {}, fault, f"{needed:.3f} of the memory is needed under load")
        return next((region for region in self._model.regions if _holds(region.when, settings)), None)

    def _between(self, pair: Pair, batch: int, *, power: float = 1.0) -> float:
        share = min(1.0, (batch - 1) / (self._model.workload.full_batch - 1))
        return float(pair.alone + (pair.full - pair.alone) * share**power)

    def _graph_ms(self, batch: int) -> float:
        graphs, settings = self._model.graphs, self._settings
        if batch > settings.cuda_graph_max_bs:
            return self._between(graphs.eager, batch)
        return graphs.padding * (settings.cuda_graph_max_bs - batch) / 256

    def _host_ms(self, batch: int) -> float:
        scheduling, settings = self._model.scheduling, self._settings
        visible = scheduling.overlap_hides if settings.overlap else 1.0
        return float(
            self._between(self._flavor.host, batch) * visible / settings.decode_steps**scheduling.decode_steps_power
        )

    def _hold(self, batch: int) -> float:
        scheduling, more = self._model.scheduling, self._settings.decode_steps - 1
        beyond = max(0, more + 1 - scheduling.hold_beyond)
        return 1.0 + more * self._between(scheduling.hold, batch) + beyond * scheduling.hold_beyond_cost

    def _all_reduce_cost(self) -> tuple[Pair, float]:
        """ms per step, and the factor on the prefill's communication."""
        machine, settings = self._model.all_reduce, self._settings
        scale = machine.calls / 1000.0
        if settings.custom_all_reduce:
            return Pair(machine.custom.alone * scale, machine.custom.full * scale), machine.custom.prefill
        nccl = settings.nccl
        protocol, algorithm, p2p = (
            machine.protocols[nccl.protocol],
            machine.algorithms[nccl.algorithm],
            machine.p2p[nccl.p2p],
        )
        channels_full = _channels(machine.channels_full, nccl.channels, machine.default_channels)
        buffers = math.log2(nccl.buffer_bytes / (4 << 20)) if nccl.protocol in (AUTO, "Simple") else 0.0
        channels_alone = _channels(machine.channels_alone, nccl.channels, machine.default_channels)
        step = Pair(
            protocol.alone * algorithm.alone * p2p.alone * scale * channels_alone,
            protocol.full * algorithm.full * p2p.full * channels_full * scale,
        )
        buffering = 1.0 - machine.buffer_doubling * max(-4.0, min(1.0, buffers))
        return step, protocol.prefill * algorithm.prefill * p2p.prefill * channels_full * buffering

    def _prefill_ms_per_token(self) -> float:
        prefill, chunk = self._model.prefill, self._settings.prefill_chunk
        size = math.log2((chunk if chunk > 0 else 1 << 17) / prefill.best_chunk)
        chunking = 1.0 + prefill.smaller * max(0.0, -size) ** 1.5 + prefill.larger * max(0.0, size) ** 1.3
        communication = 1.0 - prefill.comm_share + prefill.comm_share * self._prefill_communication
        return float(prefill.us_per_token * chunking * communication / 1000.0)

    def _kv_share(self) -> float:
        return self._settings.memory_fraction + self._flavor.memory_offset - self._model.memory.weights

    def _memory_needed(self) -> float:
        memory, settings = self._model.memory, self._settings
        chunk = settings.prefill_chunk if settings.prefill_chunk > 0 else 16384
        return (
            settings.memory_fraction
            + self._flavor.memory_offset
            + memory.graphs_at_256 * settings.cuda_graph_max_bs / 256
            + memory.chunk_at_16384 * chunk / 16384
            + (memory.custom_all_reduce if settings.custom_all_reduce else 0.0)
        )


@dataclass(frozen=True, slots=True)
class Truth:
    """What a launch would give without noise.

    Attributes:
        rates: concurrency → output tok/s of the standard workload; empty when the launch fails.
        failure: the region in which it fails, or None.
        corrupts: share of wrong tokens in its answers; 0 for a correct server.
    """

    rates: Mapping[int, float]
    failure: Region | None
    corrupts: float


def truth(
    model: SimModel, flavor: str, settings: Mapping[str, Any] | Settings, *, levels: Iterable[int] = (1, 128)
) -> Truth:
    """The true speeds of a setting, for tests and benchmarks that must know the optimum.

    Args:
        model: the performance model.
        flavor: `sglang` or `vllm`.
        settings: flags (`--name` → value, True for a switch, None or False to leave it out) and variables (upper case).
        levels: concurrency levels.

    Raises:
        SystemExit: for a flag or value that the parser refuses.
    """
    acting = settings if isinstance(settings, Settings) else parse_settings(model, flavor, settings)
    speed = Speed(model, acting)
    failure, shape = speed.failing_region(), model.workload
    rates = {
        level: speed.output_rate(level, input_tokens=shape.input_tokens, output_tokens=shape.output_tokens)
        for level in levels
    }
    return Truth(rates if failure is None else {}, failure, model.kv_dtypes[acting.kv_dtype].corrupts)


def parse_settings(model: SimModel, flavor: str, asked: Mapping[str, Any]) -> Settings:
    """What acts for a mapping of flags and variables, by the same path as a command line."""
    argv, env = ["--flavor", flavor], {}
    for name, value in asked.items():
        if value is None or value is False:
            continue
        if name.startswith("--"):
            argv += [name] if value is True else [name, str(value)]
        else:
            env[name] = str(value)
    return resolve(_parser().parse_args(argv), env, model)


def check_regions(model: SimModel) -> None:
    """Check what a model's regions say; conditions and faults are read only when a launch needs them.

    Raises:
        UserError: for a condition on no setting, or a fault that is none.
    """
    known = {item.name for item in fields(Settings)} | {"cuda_graph"}
    for region in model.regions:
        unknown = sorted(set(region.when) - known)
        if unknown:
            raise UserError(f"model {model.name}, region {region.name}: no such setting: {', '.join(unknown)}")
        try:
            parse_fault(region.fault)
        except FaultSpecError as error:
            raise UserError(f"model {model.name}, region {region.name}: {error}") from error


@cache
def _parser() -> argparse.ArgumentParser:
    return build_parser()


def _channels(curve: ChannelCurve, channels: int, default: int) -> float:
    def cost(n: int) -> float:
        return curve.fixed + curve.per_channel * n + curve.spread / n

    return cost(channels) / cost(default)


def _holds(conditions: Mapping[str, Any], settings: Settings) -> bool:
    return all(_matches(getattr(settings, name), wanted) for name, wanted in conditions.items())


def _matches(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Mapping):
        return bool(value == wanted)
    return bool(wanted.get("at_least", -math.inf) <= value <= wanted.get("at_most", math.inf))
