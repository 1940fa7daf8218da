"""Thirteen knobs of a modelled server, 700 million configurations, with a memory edge; see `server.py`."""

from benchmarks.problems.server import Machine, Noise, ServerProblem

PROBLEM = ServerProblem(
    names=(
        "custom_ar",
        "proto",
        "algo",
        "nch",
        "backend",
        "graph",
        "graph_bs",
        "k",
        "chunk",
        "mrr",
        "memf",
        "kv",
        "overlap",
    ),
    machine=Machine(custom_us=(14.0, 205.0), admission=0.008, weights_share=0.58, kv_share=0.0020),
    noise=Noise(between=0.010, within=0.010, outliers=0.03, outlier=0.05, failures=0.03),
    rules=[
        ("hang", lambda c: (c["backend"] == "flashinfer") & c["graph"] & (c["graph_bs"] >= 64)),
        ("crash", lambda c: (c["backend"] == "fa3") & (c["kv"] == "fp8_e5m2")),
    ],
)
