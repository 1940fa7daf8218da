"""Real engines on the CPU, at the least cost."""

from __future__ import annotations

VLLM_ON_ONE_CORE = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": 1}
"""Variables: bound threads want a process of their own, with all imports once more, and several threads wait for each
other while other tests have the cores."""
