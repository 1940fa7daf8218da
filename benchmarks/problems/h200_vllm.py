"""A model of what tuning vLLM on two H200s found: two settings gain 8 %, most do nothing; see `recorded.py`.

The knobs are those of `search_spaces/h200-x2.yaml`, effects and noise those of the 63 launches in
`docs/results/h200-x2/trials.json` (least squares on the log scale, rounded; what lay within noise is left out).
Channels below 8 were never launched: the all-reduce probe of that study says that 4 are twice as slow as 8.
"""

from benchmarks.problems.recorded import Knob, RecordedProblem, Together

NCCL = ("custom_all_reduce", False)

PROBLEM = RecordedProblem(
    knobs={
        "custom_all_reduce": Knob((True, False), True, {False: (-0.08, -0.08)}),
        "nccl_proto": Knob(
            ("unset", "LL", "LL128", "Simple"),
            "unset",
            {"LL": (0.0, -0.03), "LL128": (-0.15, 0.0), "Simple": (-0.29, -0.06)},
            gate=NCCL,
        ),
        "nccl_algo": Knob(("unset", "Ring", "Tree"), "unset", {"Tree": (-0.02, -0.02)}, gate=NCCL),
        "nccl_max_channels": Knob(
            (0, 4, 8, 16, 24), 0, {4: (-0.01, -0.45), 8: (-0.01, -0.2), 16: (0.0, -0.03)}, ordinal=True, gate=NCCL
        ),
        "attention_backend": Knob(("FLASH_ATTN", "TRITON_ATTN"), "FLASH_ATTN", {"TRITON_ATTN": (0.035, 0.02)}),
        "cuda_graph": Knob(
            ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "FULL", "PIECEWISE"),
            "FULL_AND_PIECEWISE",
            {"FULL_DECODE_ONLY": (-0.03, 0.0), "FULL": (0.015, 0.0), "PIECEWISE": (-0.71, -0.57)},
        ),
        "max_sequences": Knob((64, 128, 256, 1024), 1024, {64: (0.0, -0.28), 256: (0.0, -0.04)}, ordinal=True),
        "max_batched_tokens": Knob(
            (2048, 4096, 8192, 16384), 8192, {2048: (0.0, -0.05), 4096: (0.008, 0.05)}, ordinal=True
        ),
    },
    base=(278.5, 16_200.0),
    noise=(0.005, 0.04),
    seconds=(31.0, 66.0),
    pairs=[Together({"attention_backend": "TRITON_ATTN", "cuda_graph": "FULL"}, (0.025, 0.02))],
)
