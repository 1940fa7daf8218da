"""What machine is this? Facts that decide whether two measurements may be compared."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pynvml

# NVML's topology levels, by their value, in the words of `nvidia-smi topo -m`.
_TOPOLOGY = {0: "SELF", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU, as NVML sees it; memory in MiB."""

    index: int
    name: str
    uuid: str
    compute_capability: str
    memory_total_mib: int
    memory_used_mib: int
    pci_bus: str


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """A machine; `links` maps `i-j` to how the GPUs i and j reach each other (NVLink, PIX … SYS)."""

    hostname: str
    kernel: str
    cpu: str
    cores: int
    memory_gib: float
    gpus: tuple[GpuFacts, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    nccl_files: tuple[str, ...] = ()

    def summary(self) -> dict[str, str]:
        """The facts as short texts, for storage beside a measurement."""
        facts = {
            "hostname": self.hostname,
            "kernel": self.kernel,
            "cpu": self.cpu,
            "cores": str(self.cores),
            "memory_gib": f"{self.memory_gib:.0f}",
            "gpus": ", ".join(gpu.name for gpu in self.gpus) or "none",
        }
        if self.gpus:
            facts["compute_capability"] = self.gpus[0].compute_capability
            facts["links"] = ", ".join(f"{pair}:{link}" for pair, link in self.links.items())
        if self.driver:
            facts["driver"] = self.driver
        if self.cuda:
            facts["cuda"] = self.cuda
        if self.nccl_files:
            facts["nccl_conf"] = ", ".join(self.nccl_files)
        return facts


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def hidden_nccl_files() -> tuple[str, ...]:
    """Files from which NCCL takes variables besides the environment: `NCCL_CONF_FILE`, `~/.nccl.conf`, `/etc/nccl.conf`."""
    chosen = os.environ.get("NCCL_CONF_FILE")
    places = [Path(chosen) if chosen else Path.home() / ".nccl.conf", Path("/etc/nccl.conf")]
    return tuple(str(place) for place in places if place.is_file())


@contextmanager
def _nvml() -> Iterator[bool]:
    """NVML for the length of the block; False where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int) -> GpuFacts:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return GpuFacts(
        index=index,
        name=pynvml.nvmlDeviceGetName(handle),
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        compute_capability=f"{major}.{minor}",
        memory_total_mib=memory.total // 2**20,
        memory_used_mib=memory.used // 2**20,
        pci_bus=pynvml.nvmlDeviceGetPciInfo(handle).busId,
    )


def _link(first: int, second: int) -> str:
    """How two GPUs reach each other; NVLink where NVML grants peer access over it."""
    a, b = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (first, second))
    try:
        if pynvml.nvmlDeviceGetP2PStatus(a, b, pynvml.NVML_P2P_CAPS_INDEX_NVLINK) == pynvml.NVML_P2P_STATUS_OK:
            return "NVLink"
        return _TOPOLOGY.get(pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b), "unknown")
    except pynvml.NVMLError:
        return "unknown"


def _cuda_version() -> str | None:
    try:
        version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    except pynvml.NVMLError:
        return None
    return f"{version // 1000}.{version % 1000 // 10}"


def machine_facts() -> MachineFacts:
    """Look at this machine; GPUs are left out where NVML finds none."""
    gpus: tuple[GpuFacts, ...] = ()
    driver, cuda = None, None
    links: dict[str, str] = {}
    with _nvml() as usable:
        if usable:
            gpus = tuple(_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
            driver, cuda = pynvml.nvmlSystemGetDriverVersion(), _cuda_version()
            links = {f"{a.index}-{b.index}": _link(a.index, b.index) for a in gpus for b in gpus if a.index < b.index}
    return MachineFacts(
        hostname=platform.node(),
        kernel=platform.release(),
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        memory_gib=psutil.virtual_memory().total / 2**30,
        gpus=gpus,
        driver=driver,
        cuda=cuda,
        links=links,
        nccl_files=hidden_nccl_files(),
    )
