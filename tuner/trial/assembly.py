"""Everything that one launch of an engine needs to know, put together from the space, the launcher and the machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tuner.domain.candidate import Candidate
from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.denied import BUILT_IN, DenyList
from tuner.domain.launch import LaunchPlan
from tuner.domain.space import Space
from tuner.engines.catalogue import load_catalogue
from tuner.engines.definition import EngineDefinition, load_definition
from tuner.engines.installed import Installed, find_engine
from tuner.engines.plan import FixedSettings, Place, build_plan
from tuner.errors import UserError
from tuner.resources import checkout_dir, named_path
from tuner.spec import BaselineSettings, baseline_of
from tuner.trial.caches import with_caches
from tuner.trial.denyfiles import host_deny_list


class ModelMissing(UserError):
    """The space names a model folder that does not exist here."""


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """One engine of a space, ready to be launched on this machine; `deny` is what may not be launched on it."""

    space: Space
    definition: EngineDefinition
    installed: Installed
    catalogue: FlagCatalogue
    baseline: BaselineSettings
    deny: DenyList = BUILT_IN

    @property
    def baseline_candidate(self) -> Candidate:
        """The user's present configuration."""
        return Candidate.of(self.space, self.definition.name, self.baseline.values)

    @property
    def port_count(self) -> int:
        """Ports that a launch reserves: HTTP and the engine's side ports."""
        return 1 + len(self.definition.extra_ports)

    def plan(self, candidate: Candidate, place: Place) -> LaunchPlan:
        """The launch of a candidate at a place."""
        fixed = FixedSettings(self.baseline.flags, self.baseline.env)
        plan = build_plan(
            self.definition,
            self.catalogue,
            self.space,
            candidate,
            fixed,
            place,
            version=self.installed.version,
            deny=self.deny,
        )
        # The program's full path: an exported server that is started from another folder is still the same one.
        program = self.installed.program
        plan = replace(plan, argv=(*program, *plan.argv[len(program) :]))
        return with_caches(plan, self.definition, self.installed)


def engine_setup(space: Space, engine: str, *, elsewhere: bool = False) -> EngineSetup:
    """Look up everything about one engine of a space.

    Args:
        space: the space.
        engine: one of its engines.
        elsewhere: the engine will run on other nodes: neither it nor the model need be here.

    Raises:
        UserError: unknown engine, or no flag catalogue for it.
        ModelMissing: no model folder where the space names one.
        MachineUnfit: the engine is not installed here.
        SpecError: the baseline cannot be derived, or a deny file of this host is wrong.
    """
    if not elsewhere:
        space = space.model_copy(update={"model": located_model(space.model)})
    definition = load_definition(engine)
    command = space.engines[engine].command
    installed = Installed(definition.program(command), None) if elsewhere else find_engine(definition, command)
    catalogue = load_catalogue(engine, space.engines[engine].version or installed.version)
    deny = BUILT_IN if elsewhere else host_deny_list()
    return EngineSetup(space, definition, installed, catalogue, baseline_of(space, engine, catalogue), deny)


def located_model(model: str) -> str:
    """Full path of a model folder, looked for from the current folder and from the checkout; other names as they are.

    A server starts in its run directory, where a relative path would mean something else.

    Raises:
        ModelMissing: the name can only be a path, and no such folder exists.
        UserError: nothing can have this name.
    """
    written = named_path(model)
    for base in (Path.cwd(), checkout_dir()):
        if base is not None and (base / written).is_dir():
            return str((base / written).resolve())
    if model.startswith((".", "/", "~")):
        raise ModelMissing(
            f"no model folder {model}",
            hint="give an existing folder, or a name on the Hugging Face hub; the head of a shipped space says how its "
            "folder is made",
        )
    return model
