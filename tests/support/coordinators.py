"""The study `toy` on a real store with a real search, run by a coordinator whose launches a script ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from support.scripted import ScriptedExecutor

from tuner.domain.candidate import Candidate
from tuner.domain.space import Space
from tuner.domain.study import StudyRecord
from tuner.search.study import open_search
from tuner.store import Store, driver_url
from tuner.study.events import StudyEvent
from tuner.study.launches import Means
from tuner.study.loop import Coordinator
from tuner.study.stopping import StopSwitch

NAME = "toy"


def store_toy(store: Store, space: Space, *, sampler: str = "random", seed: int = 1) -> None:
    store.create_study(
        StudyRecord(
            name=NAME,
            space=space,
            space_text="",
            space_hash="h",
            sampler=sampler,
            seed=seed,
            simulated=True,
            tuner_version="0",
            created_at=1.0,
        )
    )


def coordinator_of(
    store: Store,
    url: str,
    root: Path,
    executor: ScriptedExecutor,
    baselines: Mapping[str, Candidate],
    *,
    stop: StopSwitch | None = None,
    notify: Callable[[StudyEvent], None] = lambda event: None,
    owner: str = "test",
    warm: bool = False,
) -> Coordinator:
    """A coordinator as a new process would make it, for the study as it is stored."""
    record = store.study(NAME)
    search = open_search(
        record.space,
        storage_url=driver_url(url),
        study_name=NAME,
        baselines=baselines,
        seed=record.seed,
        sampler=record.sampler,
        patience=store.patiently,
    )
    means = Means(
        store=store,
        search=search,
        executor=executor,
        owner=owner,
        run_root=root,
        gpus=0,
        phase_limits=lambda attempts: {},
        notify=notify,
        stop=stop or StopSwitch(),
        warm=warm,
    )
    return Coordinator(record, baselines=baselines, means=means)


def copy_database(source: Path, target: Path) -> str:
    """A database as it is at this moment, also while it is written to; the URL of the copy."""
    with closing(sqlite3.connect(source)) as kept, closing(sqlite3.connect(target)) as copied:
        kept.backup(copied)
    return f"sqlite:///{target}"
