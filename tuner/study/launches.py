"""Launching what an agenda asks for – and being killable at any moment.

Order of writes for every launch: attempt opened → launch → attempt finished (one transaction) → search told → marked
told. Whatever dies in between, `recover` finds the rest: an attempt without end is abandoned and its trial launched
again; one that ended but was not told is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.domain.failure_memory import next_step
from tuner.domain.machine import gpu_memory_in_use
from tuner.domain.outcome import FAILURES, Action, Failure, Phase
from tuner.domain.study import AttemptRecord, AttemptState, StudyRecord, StudyState
from tuner.domain.trial import BASELINE_PURPOSES, Cutoff, LaunchKind, Purpose, TrialReport, TrialRequest
from tuner.errors import MachineUnfit, NothingFeasible, TunerError
from tuner.execution.base import Executor, Finished, Progressed, TrialKey
from tuner.search.base import Proposal, Search
from tuner.store import Store
from tuner.study.agenda import Agenda, Done, StudyEnd
from tuner.study.claim import LEASE_S, Heartbeat
from tuner.study.events import AttemptEnded, AttemptProgressed, AttemptStarted, Noted, StudyEvent
from tuner.study.forks import Forks
from tuner.study.learned import learned_gpu_use
from tuner.study.memory import memory_of
from tuner.study.reference import output_reference
from tuner.study.restating import restated
from tuner.study.stopping import StopSwitch, Urgency
from tuner.study.verdict import sound, verdict_of
from tuner.trial.baseline_levels import BaselineLevels

_POLL_S = 0.5
_RETRY_PAUSE_S = 5.0
_AGENDA_PURPOSES = frozenset({Purpose.CONFIRM, Purpose.ABLATE})
"""Launches that an agenda asks for again by itself when they were proposed but never begun."""


@dataclass(slots=True)
class _Waiting:
    """A launch that is due again after an interruption or a pause."""

    proposal: Proposal
    attempt: int
    not_before: float = 0.0


@dataclass(slots=True)
class _Hand:
    waiting: list[_Waiting] = field(default_factory=list)
    running: dict[TrialKey, tuple[AttemptRecord, Proposal]] = field(default_factory=dict)

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        return (*(w.proposal for w in self.waiting), *(proposal for _, proposal in self.running.values()))


@dataclass(frozen=True, slots=True)
class Means:
    """What a study is run with, whatever it launches.

    Attributes:
        store: where it is remembered.
        search: its notebook, and what hears about every outcome.
        executor: runs the launches.
        owner: who holds the study's lease.
        run_root: folder of the study's run directories.
        gpus: GPUs per launch.
        phase_limits: seconds per phase for the next launch, by its kind, from the launches so far.
        notify: gets every event.
        stop: the user's switch.
        warm: launches that search may be forked from a process with the engine's imports; those that prove never are.
    """

    store: Store
    search: Search
    executor: Executor
    owner: str
    run_root: Path
    gpus: int
    phase_limits: Callable[[list[AttemptRecord]], Mapping[LaunchKind, Mapping[Phase, float]]]
    notify: Callable[[StudyEvent], None]
    stop: StopSwitch
    warm: bool = False


class Launches:
    """Launches, records, retries and tells, for whichever agenda.

    Args:
        record: the study as stored.
        means: what it is run with.
    """

    def __init__(self, record: StudyRecord, means: Means) -> None:
        self._record = record
        self._space = record.space
        self._means = means
        self._forks = Forks(enabled=means.warm)
        self._store = means.store
        self._search = means.search
        self._executor = means.executor
        self._notify = means.notify
        self._stop = means.stop
        self._hand = _Hand()
        self._heart = Heartbeat(self._renew)
        self._end: StudyEnd | None = None
        self._warned: set[str] = set()

    def pursue(self, agenda: Agenda) -> StudyEnd:
        """Launch until the agenda is done, the user stops it, or a failure makes going on pointless.

        Everything measured is recorded when this returns, whatever the reason; nothing is left running.
        """
        self._end = None
        while not self._finished():
            self._launch_due(agenda)
            for update in self._executor.poll(_POLL_S):
                if isinstance(update, Progressed):
                    self._notify(AttemptProgressed(self._hand.running[update.key][0], update.event))
                elif isinstance(update, Finished):
                    self._settle(update.key, update.report)
            self._heart.beat()
        assert self._end is not None
        return self._end

    # ---- what to launch

    def recover(self, only: Purpose | None = None) -> tuple[int, ...]:
        """Bring an interrupted study to a consistent state: nothing told twice, nothing lost.

        Args:
            only: launch nothing again but what has this purpose; what else was interrupted waits for `study resume`.

        Returns:
            The trials that wait for it.
        """
        attempts = self._store.attempts(self._record.name)
        for attempt in attempts:
            if attempt.state is AttemptState.RUNNING:
                self._store.abandon(attempt.id)
                waits = only is not None and attempt.purpose is not only
                then = f"`tuner study resume {self._record.name}` launches it again" if waits else "is launched again"
                self._notify(Noted(f"trial {attempt.trial} was interrupted and {then}"))
        self._search.restate(restated(self._space, attempts))
        pending = dict(self._search.pending)
        launches: dict[int, list[AttemptRecord]] = {}
        for attempt in attempts:
            launches.setdefault(attempt.trial, []).append(attempt)
        for attempt in attempts:
            if attempt.state.finished and not attempt.told and attempt.trial not in pending:
                self._store.mark_told(attempt.id)
        return tuple(
            trial
            for trial, proposal in pending.items()
            if not self._resume_trial(proposal, launches.get(trial, []), only)
        )

    def _resume_trial(self, proposal: Proposal, launches: list[AttemptRecord], only: Purpose | None) -> bool:
        """A proposal without verdict: told from its last launch if that decides, launched (again) otherwise.

        Returns:
            False where it has another purpose than `only`, and so was left as it is.
        """
        last = launches[-1] if launches else None
        if proposal.purpose is Purpose.VERIFY or (last is None and proposal.purpose in _AGENDA_PURPOSES):
            self._search.abandon(proposal.trial)
            return True
        proposal = replace(proposal, why="redone after an interruption", block=None if last is None else last.block)
        if last is not None and last.report is not None and not last.told:
            self._conclude(last, proposal, last.report)
            return True
        if only is not None and proposal.purpose is not only:
            return False
        self._hand.waiting.append(_Waiting(proposal, attempt=len(launches) + 1))
        return True

    def _launch_due(self, agenda: Agenda) -> None:
        """Fill the free slots, retries first."""
        if self._end is not None or self._stop.urgency > Urgency.NONE:
            return
        while len(self._hand.running) < self._executor.slots:
            now = time.monotonic()
            due = next((w for w in self._hand.waiting if w.not_before <= now), None)
            if due is not None:
                self._hand.waiting.remove(due)
            else:
                in_hand = self._hand.proposals
                found = agenda.next(self._store.attempts(self._record.name), in_hand)
                if isinstance(found, Done) and not in_hand:
                    self._finish(StudyState.FINISHED, found.reason)
                if not isinstance(found, Proposal):
                    return
                due = _Waiting(found, attempt=1)
            self._launch(due)

    def _launch(self, due: _Waiting) -> None:
        proposal, name = due.proposal, self._record.name
        run_dir = self._means.run_root / f"trial-{proposal.trial:04d}" / f"attempt-{due.attempt}"
        attempt = self._store.open_attempt(
            name,
            trial=proposal.trial,
            attempt=due.attempt,
            purpose=proposal.purpose,
            candidate=proposal.candidate,
            run_dir=str(run_dir),
            owner=self._means.owner,
            ttl=LEASE_S,
            block=proposal.block,
        )
        so_far = self._store.attempts(name)
        request = TrialRequest(
            study=name,
            trial=proposal.trial,
            attempt=due.attempt,
            purpose=proposal.purpose,
            candidate=proposal.candidate,
            space=self._space,
            workload=self._space.workload,
            run_dir=str(run_dir),
            gpus=self._means.gpus,
            # Prompts differ from launch to launch, so that no cache that survives a restart can help.
            seed=self._record.seed * 1_000_003 + proposal.trial * 101 + due.attempt,
            phase_limits=self._means.phase_limits(so_far),
            gpu_use=learned_gpu_use(so_far),
            reference=output_reference(proposal.candidate.engine, so_far),
            warm=self._forks.may_make(proposal.purpose, due.attempt),
            cutoffs=self._cutoffs(proposal),
        )
        self._hand.running[proposal.trial, due.attempt] = (attempt, proposal)
        self._executor.submit(request)
        self._notify(AttemptStarted(attempt, proposal.why))

    def _cutoffs(self, proposal: Proposal) -> tuple[Cutoff, ...]:
        """Only the search may do with a part of the numbers."""
        if proposal.purpose is not Purpose.SEARCH or not self._space.budget.cut_short:
            return ()
        return tuple(self._search.cutoffs(proposal.trial, self._space.workload.loads))

    # ---- what came back

    def _settle(self, key: TrialKey, report: TrialReport) -> None:
        attempt, proposal = self._hand.running.pop(key)
        report = sound(report)
        if self._stop.urgency is Urgency.NOW and isinstance(report.outcome, Failure):
            # Torn down on request: no verdict; the trial is launched again when the study resumes.
            self._store.abandon(attempt.id)
            self._notify(Noted(f"trial {attempt.trial} was stopped and will be launched again on resume"))
            return
        if self._forks.may_be_at_fault(report, self._store.attempts(self._record.name)):
            self._launch_plainly(attempt, proposal, report)
            return
        if self._forks.are_at_fault(attempt.trial, report):
            self._notify(Noted(f"no more warm launches: trial {attempt.trial} failed warm and was measured plainly"))
        self._store.finish_attempt(attempt.id, report)
        self._conclude(attempt, proposal, report)

    def _launch_plainly(self, attempt: AttemptRecord, proposal: Proposal, report: TrialReport) -> None:
        assert isinstance(report.outcome, Failure), "only what failed is launched again"
        self._store.abandon(attempt.id)
        self._forks.blamed(attempt.trial)
        self._hand.waiting.append(_Waiting(proposal, attempt.attempt + 1))
        why = report.outcome.failure_class.value
        self._notify(Noted(f"trial {attempt.trial} failed when launched warm ({why}) and is launched again plainly"))

    def _conclude(self, attempt: AttemptRecord, proposal: Proposal, report: TrialReport) -> None:
        """Tell the search, or try again, or stop the study – as the failure's class says."""
        action = None
        if isinstance(report.outcome, Failure):
            is_baseline = proposal.purpose in BASELINE_PURPOSES
            action = next_step(
                report.outcome, attempt.attempt, is_baseline=is_baseline, shrinking=self._shrinks(attempt, report)
            )
            if action in (Action.RETRY_SAME_ONCE, Action.RETRY_WAIT):
                pause = _RETRY_PAUSE_S if action is Action.RETRY_WAIT else 0.0
                due = _Waiting(proposal, attempt.attempt + 1, time.monotonic() + pause)
                self._hand.waiting.append(due)
                self._notify(AttemptEnded(attempt, report, action))
                return
        self._tell(attempt, report)
        self._notify(AttemptEnded(attempt, report, action))
        if isinstance(report.outcome, Failure):
            if action is Action.STOP:
                self._stop_for(report.outcome, is_baseline=proposal.purpose in BASELINE_PURPOSES)
            self._heed_advice()

    def _shrinks(self, attempt: AttemptRecord, report: TrialReport) -> bool | None:
        """Whether less GPU memory was taken before this launch than before the one that it repeats; None if unknown."""
        now = gpu_memory_in_use(report.machine)
        earlier = [a for a in self._store.attempts(self._record.name, trial=attempt.trial) if a.id < attempt.id]
        then = next((gpu_memory_in_use(a.report.machine) for a in reversed(earlier) if a.report is not None), None)
        return None if now is None or then is None else now < then

    def _tell(self, attempt: AttemptRecord, report: TrialReport) -> None:
        attempts = self._store.attempts(self._record.name)
        baselines = BaselineLevels(self._space, attempts).around(attempt.started_at)
        self._search.tell(attempt.trial, verdict_of(self._space, report, *baselines))
        self._store.mark_told(attempt.id)
        self._search.restate(restated(self._space, attempts))

    def _stop_for(self, failure: Failure, *, is_baseline: bool) -> None:
        """A failure after which no further trial makes sense."""
        policy = FAILURES[failure.failure_class]
        what = "the baseline failed" if is_baseline else "no trial can succeed"
        reason = f"{what}: {failure.failure_class.value}: {failure.detail or policy.words}"
        kind = NothingFeasible if policy.fault == "candidate" else MachineUnfit
        evidence = failure.evidence[0] if failure.evidence else None
        self._finish(StudyState.FAILED, reason, kind(reason, hint=evidence or policy.words))

    def _heed_advice(self) -> None:
        """Failures of several trials together may mean that no further one can succeed."""
        advice = memory_of(self._store.attempts(self._record.name)).advice()
        if advice is None or self._end is not None:
            return
        trials = ", ".join(map(str, advice.trials))
        if advice.certain:
            self._finish(StudyState.FAILED, advice.words, MachineUnfit(advice.words, hint=f"seen in trials {trials}"))
        elif advice.words not in self._warned:
            self._warned.add(advice.words)
            self._notify(Noted(f"{advice.words} (trials {trials})"))

    # ---- ending

    def _finish(self, state: StudyState, reason: str, error: TunerError | None = None) -> None:
        if self._end is None:
            self._end = StudyEnd(state, reason, error)

    def _finished(self) -> bool:
        """Whether nothing runs and nothing more is to be launched."""
        if self._stop.urgency is Urgency.NONE and self._store.stop_requested(self._record.name):
            self._notify(Noted("a stop was asked for: finishing the running trial"))
            self._stop.at_least(Urgency.FINISH_TRIAL)
        if self._stop.urgency is Urgency.NOW:
            self._executor.cancel()
        if self._stop.urgency > Urgency.NONE:
            self._finish(StudyState.STOPPED, "stopped by the user")
        return self._end is not None and not self._hand.running

    def _renew(self) -> None:
        """Renew the leases of the study and of its running launches."""
        self._store.acquire_coordinator(self._record.name, self._means.owner, LEASE_S)
        for attempt, _ in self._hand.running.values():
            self._store.heartbeat(attempt.id, LEASE_S)
