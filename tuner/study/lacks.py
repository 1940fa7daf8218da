"""What this machine lacks for a study: looked for in one go, so that all of it can be mended at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tuner.domain.measurement import Metric
from tuner.domain.space import Space
from tuner.domain.values import counted
from tuner.engines.installed import find_engine
from tuner.errors import MachineUnfit, TunerError, UserError
from tuner.study.given_files import refuse_unreadable
from tuner.trial.assembly import EngineSetup, ModelMissing, engine_setup
from tuner.trial.baseline_levels import wanted_metrics
from tuner.trial.machine import MachineFacts

_CANNOT_START = "cannot start on this machine: "
_ENERGY = Metric.OUTPUT_TOK_PER_JOULE.value
_ENERGY_HINT = "leave it out of objectives and limits, or run on NVIDIA GPUs whose driver counts energy (tuner doctor)"


class Lacks:
    """Collects what is missing, in the order in which it is found."""

    def __init__(self) -> None:
        self._found: list[TunerError] = []

    def note(self, check: Callable[[], object]) -> None:
        """Make a check, and keep what it says is missing."""
        try:
            check()
        except (MachineUnfit, UserError) as error:
            self._found.append(error)

    def setup(self, space: Space, engine: str, *, elsewhere: bool) -> EngineSetup:
        """How an engine is launched; one that is not here is planned as if elsewhere, and kept as missing.

        Raises:
            MachineUnfit, UserError: what is no matter of this machine.
        """
        try:
            return engine_setup(space, engine, elsewhere=elsewhere)
        except (MachineUnfit, UserError) as error:
            planned = engine_setup(space, engine, elsewhere=True)
            self._found.append(error)
            if isinstance(error, ModelMissing):
                # That is looked for first; the engine may be missing as well.
                self.note(lambda: find_engine(planned.definition, space.engines[engine].command))
            return planned

    @property
    def warnings(self) -> tuple[str, ...]:
        """Each thing that is missing, as a plan tells it."""
        return tuple(f"{_CANNOT_START}{text}" for text in self._texts)

    @property
    def _texts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(error.message for error in self._found))

    def refuse(self) -> None:
        """Raise an error like the first of them, if any, with the others in its message.

        Raises:
            MachineUnfit, UserError: what was missing first.
        """
        if self._found:
            first = self._found[0]
            kind = MachineUnfit if isinstance(first, MachineUnfit) else UserError
            raise kind("; ".join(self._texts), hint=first.hint) from first


def refuse_no_gpus_for_energy(space: Space, gpus: int) -> None:
    """Energy cannot be measured without GPUs, on whatever machine.

    Raises:
        MachineUnfit: when the space asks for it.
    """
    if not gpus and wants_energy(space):
        raise MachineUnfit(f"{_ENERGY} is measured on GPUs, and this study uses none", hint=_ENERGY_HINT)


def wants_energy(space: Space) -> bool:
    """Whether an objective or a limit needs what the GPUs use."""
    return any(at.metric is Metric.OUTPUT_TOK_PER_JOULE for at in wanted_metrics(space))


def checks_of(space: Space, gpus: int, machine: MachineFacts) -> Iterator[Callable[[], None]]:
    """What is looked at before a study begins here: GPUs, and files that it needs later."""
    yield lambda: _refuse_too_few(gpus, machine)
    if 0 < gpus <= len(machine.gpus):
        yield lambda: _refuse_other_kind(space, machine)
        yield lambda: _refuse_silent(space, gpus, machine)
    yield lambda: refuse_unreadable(space)


def _refuse_too_few(gpus: int, machine: MachineFacts) -> None:
    if gpus > len(machine.gpus):
        raise MachineUnfit(
            f"the space wants {counted(gpus, 'GPU')}, this machine has {len(machine.gpus)}",
            hint="run it on such a machine, join one with --ray-address, or lower hardware.gpus in the space file",
        )


def _refuse_other_kind(space: Space, machine: MachineFacts) -> None:
    capability, found = space.hardware.compute_capability, machine.gpus[0].compute_capability
    if capability is not None and found != capability:
        raise MachineUnfit(
            f"the space is for compute capability {capability}, GPU 0 has {found}",
            hint="choose the space file for this machine: tuner space list",
        )


def _refuse_silent(space: Space, gpus: int, machine: MachineFacts) -> None:
    silent = [str(gpu.index) for gpu in machine.gpus[:gpus] if not gpu.counts_energy]
    if silent and wants_energy(space):
        raise MachineUnfit(
            f"{_ENERGY} cannot be measured: the driver tells no energy of GPU {', '.join(silent)}", hint=_ENERGY_HINT
        )
