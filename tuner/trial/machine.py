"""What machine is this? Facts that decide whether two measurements may be compared."""

from __future__ import annotations

import hashlib
import mmap
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pynvml

from tuner.trial.energy import counts_energy

# NVML's topology levels, by their value, in the words of `nvidia-smi topo -m`.
_TOPOLOGY = {0: "SELF", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU, as NVML sees it; memory in MiB; `counts_energy` when it says how much energy it uses."""

    index: int
    name: str
    uuid: str
    compute_capability: str
    memory_total_mib: int
    memory_used_mib: int
    pci_bus: str
    pcie: str = "unknown"
    counts_energy: bool = False


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
    governor: str | None = None
    container: str = "none"

    def summary(self) -> dict[str, str]:
        """The facts as short texts, for storage beside a measurement."""
        facts = {
            "hostname": self.hostname,
            "kernel": self.kernel,
            "cpu": self.cpu,
            "cores": str(self.cores),
            "memory_gib": f"{self.memory_gib:.0f}",
            "gpus": ", ".join(gpu.name for gpu in self.gpus) or "none",
            "container": self.container,
        }
        if self.governor:
            facts["governor"] = self.governor
        if self.gpus:
            facts["compute_capability"] = self.gpus[0].compute_capability
            facts["links"] = ", ".join(f"{pair}:{link}" for pair, link in self.links.items())
            facts["pcie"] = ", ".join(gpu.pcie for gpu in self.gpus)
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
    """Files from which NCCL takes variables besides the environment.

    They are `NCCL_CONF_FILE` or else `~/.nccl.conf`, and `/etc/nccl.conf`.
    """
    chosen = os.environ.get("NCCL_CONF_FILE")
    places = [Path(chosen) if chosen else Path.home() / ".nccl.conf", Path("/etc/nccl.conf")]
    return tuple(str(place) for place in places if place.is_file())


def _governor() -> str | None:
    file = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return file.read_text(encoding="utf-8").strip() if file.is_file() else None


def _container() -> str:
    """Which kind of container this process lives in, by the files that each leaves."""
    if Path("/run/.containerenv").exists():
        return "podman"
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    return "docker" if Path("/.dockerenv").exists() else "none"


def loaded_nccl(pids: Iterable[int], proc: Path = Path("/proc")) -> str | None:
    """Version and path of the NCCL library that some processes have mapped; None when none of them has one.

    The path tells which of several installed copies the engine really loaded; the version is read from the library
    itself, which carries it as text.
    """
    for pid in pids:
        try:
            maps = (proc / str(pid) / "maps").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # ended meanwhile
        path = next((line.split(maxsplit=5)[5] for line in maps.splitlines() if "/libnccl.so" in line), None)
        if path is not None:
            return f"{_nccl_version(Path(path)) or 'unknown version'} ({path})"
    return None


def _nccl_version(library: Path) -> str | None:
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = re.search(rb"NCCL version (\d+\.\d+\.\d+)", content)
            return found.group(1).decode() if found else None
    except (OSError, ValueError):
        return None


def model_config_hash(model: str) -> str | None:
    """First digits of the sha256 of a model folder's `config.json`; None where the model is no local folder."""
    file = Path(model) / "config.json"
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else None


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
        pcie=_pcie(handle),
        counts_energy=counts_energy(pynvml, (index,)),
    )


def _pcie(handle: object) -> str:
    """`gen5 x16`: the best link that GPU and slot agree on; the present one is lower while the GPU idles."""
    try:
        generation = pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
        return f"gen{generation} x{pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)}"
    except pynvml.NVMLError:
        return "unknown"


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
        governor=_governor(),
        container=_container(),
    )
