"""Nine knobs of a modelled server, 160 thousand configurations; see `server.py`."""

from benchmarks.problems.server import Machine, Noise, ServerProblem

PROBLEM = ServerProblem(
    names=("custom_ar", "proto", "algo", "nch", "backend", "graph", "k", "chunk", "overlap"),
    machine=Machine(custom_us=(19.0, 195.0), channels_best=(3.0, 8.0), channels_bend=(0.12, 0.02)),
    noise=Noise(between=0.006, within=0.006, outliers=0.02, outlier=0.04, failures=0.02),
    rules=[("hang", lambda c: (c["backend"] == "flashinfer") & c["graph"])],
    choices={"backend": ("triton", "flashinfer", "torch_native")},
)
