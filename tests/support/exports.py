"""Exports for tests, without a study behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st
from support import records

from tuner.domain.front import Estimate, Gain
from tuner.domain.launch import LaunchPlan
from tuner.domain.measurement import Metric, SpreadKind
from tuner.domain.space import Objective
from tuner.export.base import Export, Number
from tuner.secrets import HIDDEN


def texts(nasty: Sequence[str]) -> st.SearchStrategy[str]:
    """Any text that an argument or a variable can hold, the nasty ones often.

    Hypothesis draws constants of the code under test as well: what stands for a hidden secret is exported as another.
    """
    characters = st.characters(exclude_characters="\0", exclude_categories=("Cs",))
    return st.text(characters, max_size=20).filter(lambda text: HIDDEN not in text) | st.sampled_from(nasty)


def export(plan: LaunchPlan | None = None, **changes: object) -> Export:
    """What trial 7 of the study `night` is exported as."""
    numbers = (
        Number(
            Objective(metric=Metric.OUTPUT_TOK_S, level=1),
            Estimate(90.04, 89.1, 91.0, 3, SpreadKind.BETWEEN_LAUNCHES),
            Gain(1.4156, 1.39, 1.44),
        ),
        Number(Objective(metric=Metric.OUTPUT_TOK_S, level=128), Estimate(2320.0), None),
    )
    fields: dict[str, object] = {
        "study": "night",
        "trial": 7,
        "fingerprint": "0123456789ab",
        "plan": plan or served_plan(),
        "program": 3,
        "settings": {"nccl_proto": "LL", "decode_steps": 4, "graphs": None},
        "changes": {"nccl_proto": (None, "LL"), "graphs": (True, None)},
        "numbers": numbers,
        "broken": (),
        "versions": {"sglang": "0.5.23", "driver": "590.44"},
        "machine": {"gpu": "8x RTX PRO 6000"},
        "measured_at": 1_800_000_000.0,
        "tuner_version": "0.1.0",
        "simulated": False,
    }
    return Export(**(fields | changes))  # type: ignore[arg-type]


def served_plan(
    arguments: tuple[str, ...] = ("--attention-backend", "flashinfer", "--json-model-override-args", '{"a": "b c"}'),
    env: Mapping[str, str] | None = None,
    program: tuple[str, ...] = ("/opt/sglang/bin/python3", "-m", "sglang.launch_server"),
    **changes: object,
) -> LaunchPlan:
    """An SGLang launch, its arguments in the order in which launches are built."""
    argv = (*program, "--model-path", "/models/Kimi-K2.5", "--host", "127.0.0.1", "--port", "31000", *arguments)
    fields: dict[str, object] = {
        "engine": "sglang",
        "argv": argv,
        "env": {"NCCL_PROTO": "LL", "NCCL_ALGO": "ring,tree;allreduce:tree"} if env is None else env,
        "pass_env": ("HF_TOKEN", "HF_HOME"),
        "gpus": (0, 1),
        "simulated": False,
        "model": "/models/Kimi-K2.5",
        "engine_version": "0.5.23",
    }
    return records.plan(**(fields | changes))
