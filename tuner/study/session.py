"""Running a prepared study, new or resumed, and leaving nothing behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tuner.domain.probe import ProbeReport
from tuner.errors import TunerError
from tuner.execution.ray import RayExecutor
from tuner.probe.priors import with_priors
from tuner.search.base import Search
from tuner.search.study import delete_search, open_search
from tuner.store import Store, default_url, driver_url
from tuner.store.owner import this_process
from tuner.study.agenda import StudyEnd
from tuner.study.claim import LEASE_S, claim
from tuner.study.events import Noted, StudyEvent
from tuner.study.launches import Means
from tuner.study.learned import learned_limits
from tuner.study.loop import Coordinator
from tuner.study.options import RunOptions
from tuner.study.preparing import Prepared
from tuner.study.probing import FirstStep, probe_first, queue_best
from tuner.study.runs import runs_root
from tuner.study.stopping import StopSwitch
from tuner.study.warmstart import hints_for
from tuner.trial.sweep import sweep


def start_study(
    prepared: Prepared,
    store: Store,
    options: RunOptions,
    *,
    storage_url: str | None,
    notify: Callable[[StudyEvent], None],
    stop: StopSwitch,
) -> StudyEnd:
    """Store a new study and run it; see `run_study`.

    One that fails before its first launch (no Ray, no such cluster) is forgotten: its name is free again.

    Raises:
        StudyError: the name is taken.
        StorageError: the database is damaged.
        MachineUnfit: Ray or its GPUs are not to be had.
    """
    name = prepared.record.name
    store.refuse_damaged()
    store.create_study(prepared.record)
    try:
        return run_study(prepared, store, options, storage_url=storage_url, notify=notify, stop=stop)
    except TunerError:
        # The database itself may be what failed.
        with contextlib.suppress(TunerError):
            if not store.attempts(name):
                store.delete_study(name)
                delete_search(driver_url(storage_url or default_url()), name)
        raise


def run_study(
    prepared: Prepared,
    store: Store,
    options: RunOptions,
    *,
    storage_url: str | None,
    notify: Callable[[StudyEvent], None],
    stop: StopSwitch,
    work: Callable[[Coordinator], StudyEnd] = Coordinator.run,
) -> StudyEnd:
    """Run a prepared study, new or resumed, until it ends.

    Args:
        prepared: the study.
        store: where it is stored.
        options: where its launches run.
        storage_url: of the database, as the user gave it; None for the default.
        notify: gets every event.
        stop: the user's switch.
        work: what its coordinator does: the whole study, or a confirmation or ablation alone.

    Raises:
        StudyError: another coordinator runs it.
        Stopped: the user stopped it before it was clear that nobody else runs it.
        MachineUnfit: Ray or its GPUs are not to be had.
    """
    record, owner = prepared.record, this_process()
    store.tell_when_away(lambda text: notify(Noted(text)))
    claim(store, record, owner, notify, stop)
    try:
        store.change_study(record)
        earlier = store.attempts(record.name)
        root = runs_root(record.name, earlier)
        # What an earlier coordinator left running must be gone before anything is measured.
        sweep(root)
        step = FirstStep(record.name, record.space, prepared.gpus, root / "probe", options.ray_address is not None)
        probe = probe_first(
            step,
            store,
            stop=stop,
            notify=notify,
            keep_lease=lambda: store.acquire_coordinator(record.name, owner, LEASE_S),
        )
        search = _search_of(prepared, store, probe, storage_url)
        if probe is not None and not earlier:
            queue_best(search, record.space, probe, prepared.setups[probe.engine].baseline.values)
        executor = RayExecutor(gpus=prepared.gpus, parallel=options.parallel, address=options.ray_address)
        try:
            means = Means(
                store=store,
                search=search,
                executor=executor,
                owner=owner,
                run_root=root,
                gpus=prepared.gpus,
                phase_limits=learned_limits,
                notify=notify,
                stop=stop,
                warm=options.warm,
            )
            return work(Coordinator(record, baselines=prepared.baselines, means=means))
        finally:
            executor.close()
    finally:
        store.release_coordinator(record.name, owner)


def _search_of(prepared: Prepared, store: Store, probe: ProbeReport | None, storage_url: str | None) -> Search:
    """The study's search, made or opened again, with what a probe and earlier studies tell."""
    record = prepared.record
    return open_search(
        record.space if probe is None else with_priors(record.space, probe),
        storage_url=driver_url(storage_url or default_url()),
        study_name=record.name,
        baselines=prepared.baselines,
        seed=record.seed,
        sampler=record.sampler,
        hints=hints_for(store, prepared),
        patience=store.patiently,
    )
