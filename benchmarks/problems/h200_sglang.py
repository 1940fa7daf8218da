"""A model of what tuning SGLang on two H200s found: one setting gains 3 %, and noise hides the second objective.

The knobs are those of `search_spaces/h200-x2.yaml`, effects and noise those of the 25 launches in
`docs/results/h200-x2-sglang/trials.json` (least squares on the log scale, rounded; what lay within noise is left out).
Nothing could be told at 128 streams, where launches scatter by 20 %: fewer sequences than streams cost there what they
cost vLLM on the same machine, and so do NCCL's protocols, most of which this study did not launch.
"""

from benchmarks.problems.recorded import Knob, RecordedProblem

NCCL = ("custom_all_reduce", False)

PROBLEM = RecordedProblem(
    knobs={
        "custom_all_reduce": Knob((True, False), True, {False: (-0.10, -0.08)}),
        "nccl_proto": Knob(
            ("unset", "LL", "LL128", "Simple"), "unset", {"LL128": (-0.15, 0.0), "Simple": (-0.29, -0.06)}, gate=NCCL
        ),
        "nccl_algo": Knob(("unset", "Ring", "Tree"), "unset", {}, gate=NCCL),
        "nccl_max_channels": Knob((0, 4, 8, 16, 24), 0, {4: (0.0, -0.45), 8: (0.0, -0.2)}, ordinal=True, gate=NCCL),
        "attention_backend": Knob(("fa3", "triton"), "fa3", {"triton": (0.03, 0.0)}),
        "prefill_graph": Knob(("unset", "breakable", "disabled"), "unset", {"disabled": (-0.04, 0.0)}),
        "overlap_schedule": Knob((True, False), True, {False: (-0.33, 0.0)}),
        "decode_steps": Knob((1, 4), 1, {}, ordinal=True),
        "max_sequences": Knob((0, 64, 128, 256), 0, {64: (0.0, -0.28)}, ordinal=True),
        "chunked_prefill": Knob((0, 2048, 4096, 16384), 0, {16384: (-0.03, 0.0)}, ordinal=True),
    },
    base=(299.5, 14_700.0),
    noise=(0.01, 0.20),
    seconds=(40.0, 60.0),
)
