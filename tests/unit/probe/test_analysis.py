"""What times say, on modelled ones and on those of two H200s (`tests/data/nccl/allreduce_2xh200.csv`)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pytest

from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.probe import Backend, MessageSize, ProbeFailure, ProbeReport, ProbeRun, ProbeSetting
from tuner.domain.values import Value
from tuner.probe.advice import advice
from tuner.probe.analysis import ProbeFindings

DATA = Path(__file__).parents[2] / "data" / "nccl" / "allreduce_2xh200.csv"
KIB, MIB = 1 << 10, 1 << 20
# An 8B Llama: 4096 numbers of two bytes for each token.
SIZES = (
    MessageSize(8 * KIB, "decode at C=1"),
    MessageSize(256 * KIB, "decode at C=32"),
    MessageSize(MIB, "decode at C=128"),
    MessageSize(16 * MIB, "prefill of 2048 tokens", decode=False),
)


def setting(**values: Value) -> ProbeSetting:
    return ProbeSetting(values, {name.upper(): str(value) for name, value in values.items()})


def report(
    times: Mapping[str, Sequence[Mapping[int, float]]],
    settings: Sequence[ProbeSetting],
    *,
    failures: Sequence[ProbeFailure] = (),
    own: int | None = 0,
) -> ProbeReport:
    """A report from label → one mapping of bytes → microseconds per run."""
    runs = [
        ProbeRun(label, position, {size: (us,) for size, us in run.items()})
        for label, found in times.items()
        for position, run in enumerate(found)
    ]
    return ProbeReport(
        engine="vllm",
        backend=Backend.NCCL,
        ranks=2,
        dtype="bfloat16",
        layers=32,
        sizes=SIZES,
        settings=tuple(settings),
        runs=tuple(runs),
        failures=tuple(failures),
        own_up_to_bytes=own,
    )


def scattered(base: float, share: float, runs: int, seed: int) -> list[dict[int, float]]:
    """Runs that scatter by a share (log-normal), larger messages taking longer."""
    random = Random(seed)
    return [
        {size.size_bytes: base * (1 + n) * random.lognormvariate(0, share) for n, size in enumerate(SIZES)}
        for _ in range(runs)
    ]


class TestModelled:
    SETTINGS = (ProbeSetting(), setting(proto="LL"), setting(proto="Simple"), setting(cumem=0), setting(cumem=1))

    def found(self, seed: int, *, own: int | None = 0) -> ProbeFindings:
        times = {
            "default": scattered(12, 0.03, 6, seed),
            "proto=LL": scattered(9, 0.03, 3, seed + 1),
            "proto=Simple": scattered(24, 0.03, 3, seed + 2),
            "cumem=0": scattered(12, 0.03, 3, seed + 3),
            "cumem=1": scattered(12, 0.03, 3, seed + 4),
        }
        return ProbeFindings(report(times, self.SETTINGS, own=own))

    def test_what_is_faster_comes_first_and_what_is_slower_last(self) -> None:
        order = [ranked.setting.label for ranked in self.found(1).ranking]
        assert order[0] == "proto=LL"
        assert order[-1] == "proto=Simple"

    def test_the_best_is_told_with_what_a_step_can_gain_at_most(self) -> None:
        best = self.found(1).best
        assert best is not None
        assert best.setting.label == "proto=LL"
        # 12 − 9 µs, twice in each of 32 layers.
        assert best.step_us == pytest.approx(192, rel=0.3)
        assert self.found(1).likely() == {"proto": ("LL",)}

    def test_a_knob_that_moves_nothing_is_idle_with_the_difference_that_would_have_shown(self) -> None:
        (idle,) = self.found(1).idle
        assert idle.knob == "cumem"
        assert 0.02 < idle.resolution < 0.25

    def test_noise_alone_is_seldom_taken_for_a_difference(self) -> None:
        wrong = 0
        for seed in range(100):
            times = {s.label: scattered(12, 0.05, 6 if s.label == "default" else 2, seed * 10 + n)
                     for n, s in enumerate(self.SETTINGS)}  # fmt: skip
            found = ProbeFindings(report(times, self.SETTINGS))
            wrong += any(row.differs for row in found.times if row.size_bytes == 8 * KIB)
        assert wrong <= 12  # 5 % wanted; 13 of 100 would have a chance below one in a thousand

    def test_one_run_of_each_tells_nothing(self) -> None:
        times = {s.label: scattered(12 * (n + 1), 0.03, 1, n) for n, s in enumerate(self.SETTINGS)}
        found = ProbeFindings(report(times, self.SETTINGS))
        assert not found.has_noise
        assert found.best is None
        assert found.idle == ()
        assert any("too little was repeated" in sentence for sentence in advice(found.report))

    def test_messages_that_the_engine_carries_itself_never_reach_nccl(self) -> None:
        found = self.found(1, own=8 * MIB)
        assert [size.step for size in found.bypassed] == ["decode at C=1", "decode at C=32", "decode at C=128"]
        assert found.decode_is_bypassed
        assert "no decode step reaches NCCL" in advice(found.report)[0]
        assert "prefill of 2048 tokens (16 MiB)" in advice(found.report)[0]
        assert not self.found(1, own=512 * KIB).decode_is_bypassed
        assert self.found(1, own=0).bypassed == ()

    def test_a_setting_that_failed_is_named_and_has_no_place(self) -> None:
        failure = Failure(FailureClass.NCCL_CONFIG, Phase.NCCL_INIT, ("NCCL WARN …",), detail="no algorithm left")
        times = {s.label: scattered(12, 0.03, 3, n) for n, s in enumerate(self.SETTINGS)}
        found = report(times, self.SETTINGS, failures=[ProbeFailure("proto=LL", failure)])
        assert "proto=LL" not in [ranked.setting.label for ranked in ProbeFindings(found).ranking]
        assert "proto=LL fails: nccl_config: no algorithm left" in advice(found)

    def test_a_default_that_fails_is_the_only_thing_to_be_told(self) -> None:
        failure = Failure(FailureClass.NCCL_HANG, Phase.NCCL_INIT, detail="the ranks never met")
        found = report({}, self.SETTINGS, failures=[ProbeFailure("default", failure)])
        assert not found.works
        assert advice(found) == ("NCCL does not work between 2 ranks here: nccl_hang: the ranks never met",)


# Label → single runs that stand for it.
REPEATS = {
    "default": ["unset.unset", "default.again", "p2plevel_NVL", "nthr512", "shm_disable"],
    "proto=LL": ["unset.LL", "Ring.LL"],
    "proto=LL128": ["unset.LL128", "Ring.LL128"],
    "proto=Simple": ["unset.Simple", "Ring.Simple"],
    "channels=2": ["maxch2"],
    "channels=8": ["maxch8"],
    "cumem=0": ["cumem0"],
    "p2p_disable=1": ["p2p_disable"],
}


class TestGainsAtSomeSizes:
    """Microseconds of two H200s with a model of 7168 numbers for each token (docs/results/h200-x2-moe)."""

    RUNS = {  # noqa: RUF012
        "default": [(11.785, 12.547, 28.3), (12.204, 12.163, 27.9), (12.726, 11.914, 28.0), (12.342, 12.429, 28.2)],
        "proto=LL": [(12.890, 11.962, 22.5), (13.142, 12.259, 22.8)],
    }

    def found(self, **more: list[tuple[float, float, float]]) -> ProbeFindings:
        runs = self.RUNS | {name.replace("_", "="): found for name, found in more.items()}
        times = {
            label: [dict(zip((size.size_bytes for size in SIZES), (*us, 400.0), strict=True)) for us in found]
            for label, found in runs.items()
        }
        return ProbeFindings(
            report(times, [ProbeSetting(), *(setting(proto=label[6:]) for label in runs if "=" in label)])
        )

    def test_only_the_sizes_that_gain_are_told_with_their_interval(self) -> None:
        found = self.found()
        best = found.best
        assert best is not None
        assert [(row.size_bytes, row.center_us) for row in best.gains] == [(MIB, pytest.approx(22.65))]
        (told,) = [line for line in advice(found.report) if line.startswith("proto=LL: ")]
        assert told.startswith("proto=LL: decode at C=128 (1 MiB) 19 % [")
        assert told.endswith("] faster than the default: worth an early launch, tokens per second decide")

    def test_a_setting_that_loses_at_another_size_gains_nothing(self) -> None:
        found = self.found(proto_LL128=[(18.115, 18.720, 24.2), (18.152, 17.856, 24.0)])
        gains = {ranked.setting.label: bool(ranked.gains) for ranked in found.ranking}
        assert gains == {"default": False, "proto=LL": True, "proto=LL128": False}


class TestTwoH200:
    """One run each of some settings. Those that change nothing there (level NVL, 512 threads, shared memory off, debug
    lines) repeat the default; algorithm Ring, which NCCL chose anyway, repeats each protocol."""

    @pytest.fixture
    def found(self) -> ProbeFindings:
        rows: dict[str, dict[int, float]] = {}
        with DATA.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["us_median"]:
                    rows.setdefault(row["tag"], {})[int(row["bytes"])] = float(row["us_median"])
        times = {label: [rows[tag] for tag in tags] for label, tags in REPEATS.items()}
        named = [label.split("=") for label in times if label != "default"]
        return ProbeFindings(report(times, [ProbeSetting(), *(setting(**{k: v}) for k, v in named)], own=8 * MIB))

    def test_the_order_at_decode_sizes_is_that_of_tokens_per_second(self, found: ProbeFindings) -> None:
        """Serving with NCCL gave 259 tok/s alone by its own choice, LL 258, LL128 215–229, Simple 199–205."""
        order = [ranked.setting.label for ranked in found.ranking]
        protocols = [label for label in order if label == "default" or label.startswith("proto")]
        assert set(protocols[:2]) == {"default", "proto=LL"}
        assert protocols[2:] == ["proto=LL128", "proto=Simple"]

    def test_nothing_is_faster_than_ncclS_own_choice(self, found: ProbeFindings) -> None:
        assert found.best is None
        assert "no setting is faster than the default at decode sizes beyond noise" in advice(found.report)

    def test_what_is_twice_as_slow_is_slower_beyond_noise(self, found: ProbeFindings) -> None:
        slower = {row.setting for row in found.times if row.change is not None and row.change.low > 0}
        assert {"proto=Simple", "p2p_disable=1"} <= slower
        at_decode = {row.setting for row in found.times if row.differs and row.size_bytes < 16 * MIB}
        assert "proto=LL" not in at_decode

    def test_few_channels_hurt_large_messages_and_not_small_ones(self, found: ProbeFindings) -> None:
        by_size = {row.size_bytes: row.differs for row in found.times if row.setting == "channels=2"}
        assert not by_size[8 * KIB]
        assert by_size[MIB]
        assert by_size[16 * MIB]

    def test_the_way_memory_is_allocated_cannot_matter(self, found: ProbeFindings) -> None:
        assert "cumem" in [idle.knob for idle in found.idle]
        assert not {"proto", "channels", "p2p_disable"} & {idle.knob for idle in found.idle}

    def test_with_the_engines_own_all_reduce_no_decode_step_reaches_nccl(self, found: ProbeFindings) -> None:
        assert found.decode_is_bypassed
