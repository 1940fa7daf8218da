"""What PyTorch asks the driver about GPUs, answered without CUDA in this process; part of `zygote`, standard library.

SGLang looks at the GPUs while it is imported and once more while it reads its arguments: is there one, of which compute
capability, with how many multiprocessors? Each such question initialises CUDA, and a process with CUDA cannot be forked
(see `forkable`). A child asks the driver once, for all devices, and ends; its answers are given in its place, first
while the engine is imported and then in each server's first process, until that has forked its workers. Workers ask the
driver themselves.

PyTorch's Python code comes to the driver by four of the functions below and by `torch.cuda._lazy_init`, which returns
at once in a thread whose `torch.cuda._tls` says that it is initialising (torch/cuda/__init__.py, checked in 2.11);
Triton's comes by one (triton/backends/nvidia/driver.py, 3.6). What engines ask beyond that still initialises CUDA, and
is found out: then the parent is not forked, or the server's workers are spawned.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

_PATIENCE_S = 60.0
_CHUNK = 1 << 16


class DeviceAnswers:
    """Answers in the place of PyTorch's and Triton's functions; they are in force between `start` and `stop`.

    Args:
        torch: the module.
        devices: for each GPU, what `torch.cuda.get_device_properties` says.
        triton_devices: the same of Triton's driver; empty if it was not to be asked.
    """

    def __init__(
        self, torch: Any, devices: Sequence[Mapping[str, Any]], triton_devices: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        properties = [SimpleNamespace(**device) for device in devices]
        accelerator = torch.device("cuda")
        self._cuda = torch.cuda
        self._triton_devices = triton_devices
        self._answers: list[tuple[Any, str, Callable[..., Any]]] = [
            (torch._C, "_cuda_getDeviceCount", lambda: len(properties)),
            (torch._C, "_cuda_getDevice", lambda: 0),
            (torch._C, "_get_accelerator", lambda _check=None: accelerator),
            (torch.cuda, "_get_device_properties", properties.__getitem__),
        ]
        self._originals: list[tuple[Any, str, Any]] = []

    def start(self) -> None:
        """Answer from now on, in this thread."""
        self._cuda._tls.is_initializing = True
        for place, name, answer in self._answers:
            self._answer(place, name, answer)
        if self._triton_devices:
            # Its driver is made when it is first looked at, and asks PyTorch then.
            self._answer(_triton_driver().utils, "get_device_properties", self._triton_devices.__getitem__)

    def _answer(self, place: Any, name: str, answer: Callable[..., Any]) -> None:
        self._originals.append((place, name, getattr(place, name, None)))
        setattr(place, name, answer)

    def stop(self) -> None:
        """Leave it to the driver again."""
        while self._originals:
            place, name, original = self._originals.pop()
            if original is None:
                delattr(place, name)
            else:
                setattr(place, name, original)
        with contextlib.suppress(AttributeError):
            del self._cuda._tls.is_initializing


def for_torch() -> DeviceAnswers | None:
    """Answers for the GPUs that PyTorch sees; None where it sees none, was built without CUDA, or is not there."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    if not hasattr(torch._C, "_cuda_getDeviceCount"):
        return None
    said = _asked_in_a_child(lambda: {"torch": _devices(torch), "triton": _triton_devices(torch)})
    return DeviceAnswers(torch, said["torch"], said["triton"]) if said.get("torch") else None


def _devices(torch: Any) -> list[dict[str, Any]]:
    """Initialises CUDA."""
    return [_plain(torch.cuda.get_device_properties(number)) for number in range(torch.cuda.device_count())]


def _triton_devices(torch: Any) -> list[dict[str, Any]]:
    """Needs CUDA that is initialised."""
    try:
        ask = _triton_driver().utils.get_device_properties
        return [dict(ask(number)) for number in range(torch.cuda.device_count())]
    except Exception:  # noqa: BLE001 - no Triton, or another version of it: then its questions are not answered
        return []


def _triton_driver() -> Any:
    return importlib.import_module("triton.runtime").driver.active


def _plain(properties: Any) -> dict[str, Any]:
    """The fields of a device's properties; what is no number stays as it is printed."""
    fields = {name: getattr(properties, name) for name in dir(properties) if not name.startswith("_")}
    return {
        name: value if isinstance(value, int | float | str) else str(value)
        for name, value in fields.items()
        if not callable(value)
    }


def _asked_in_a_child(question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the question says in a fork of this process; nothing if it fails or takes too long."""
    answer, its_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException), os.fdopen(its_end, "w", encoding="utf-8") as output:
            json.dump(question(), output)
        os._exit(0)
    os.close(its_end)
    said = b""
    try:
        while select.select([answer], [], [], _PATIENCE_S)[0] and (part := os.read(answer, _CHUNK)):
            said += part
    finally:
        os.close(answer)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    try:
        answers: dict[str, Any] = json.loads(said)
    except ValueError:
        return {}
    return answers
