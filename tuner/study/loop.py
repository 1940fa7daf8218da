"""A study from its first launch to its last: search until the budget says, then confirm what was found."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace

from tuner.domain.candidate import Candidate
from tuner.domain.failure_memory import FailureMemory
from tuner.domain.outcome import Failure
from tuner.domain.study import AttemptRecord, AttemptState, StudyRecord, StudyState
from tuner.domain.trial import BASELINE_PURPOSES, Purpose
from tuner.search.base import Infeasible, Partial, Proposal, Search, SpaceExhausted
from tuner.store.owner import same_boot
from tuner.study.ablate import AblateAgenda, AblationPlan
from tuner.study.agenda import Agenda, Done, StudyEnd
from tuner.study.confirm import ConfirmAgenda
from tuner.study.drift import machine_drift
from tuner.study.events import Noted, StudyEvent
from tuner.study.extent import Extent, automatic_extent
from tuner.study.launches import Launches, Means
from tuner.study.memory import memory_of, second_chance
from tuner.study.silence import Silent, silent_settings, without_silent
from tuner.study.stopping import Spent, Stopwatch, nothing_left, spent_reason, trials_spent
from tuner.trial.baseline_levels import BaselineLevels

_MAX_ANSWERED = 20
_MORE_SENTINELS = 2
"""So many times as often the baseline is launched again while the machine drifts."""
_MOST_RESERVED = 0.5
"""The confirmation gets at most half as much time as the search before it."""


class Coordinator:
    """Runs one study to its end.

    Args:
        record: the study as stored.
        baselines: the baseline candidate of each engine, in the space's order.
        means: what it is run with.
    """

    def __init__(self, record: StudyRecord, *, baselines: Mapping[str, Candidate], means: Means) -> None:
        self._record = record
        self._baselines = baselines
        self._store = means.store
        self._search = means.search
        self._gpus = means.gpus
        self._notify = means.notify
        self._owner = means.owner
        self._watch = Stopwatch()
        self._launches = Launches(record, means)

    def run(self) -> StudyEnd:
        """Search, then confirm, until the budget, the space or the user ends the study.

        Everything measured is recorded when this returns, whatever the reason; nothing is left running.
        """
        budget, engines = self._record.space.budget, len(self._baselines)
        extent = automatic_extent(budget, engines=engines)
        search = SearchAgenda(
            self._record,
            search=self._search,
            baselines=self._baselines,
            spent=self._spent,
            reserved=extent.launches if extent is not None else 0,
            owner=self._owner,
            notify=self._notify,
        )
        if extent is None:
            return self.pursue(search)
        confirm = ConfirmAgenda(
            self._record,
            search=self._search,
            baselines=self._baselines,
            extent=lambda attempts: automatic_extent(budget, engines=engines, affordable=self._affordable(attempts)),
            spent=self._spent,
        )
        return self.pursue(search, confirm)

    def confirm(self, extent: Extent) -> StudyEnd:
        """Confirm now, whatever the budget says; a confirmation that was begun goes on."""
        agenda = ConfirmAgenda(self._record, search=self._search, baselines=self._baselines, extent=lambda _: extent)
        return self.pursue(agenda, only=Purpose.CONFIRM)

    def ablate(self, plan: AblationPlan) -> StudyEnd:
        """Launch what an ablation still lacks."""
        return self.pursue(AblateAgenda(plan, search=self._search, seed=self._record.seed), only=Purpose.ABLATE)

    def pursue(self, *agendas: Agenda, only: Purpose | None = None) -> StudyEnd:
        """Bring the study to a consistent state, then follow agendas one after the other; the first trouble ends it.

        Args:
            agendas: what to launch.
            only: the purpose of the agendas' launches where they are to be all that is launched (see `recover`).
        """
        self._store.set_state(self._record.name, StudyState.RUNNING, "")
        waiting = self._launches.recover(only)
        reasons = []
        for agenda in agendas:
            end = self._launches.pursue(agenda)
            reasons.append(end.reason)
            if end.state is not StudyState.FINISHED:
                break
        if end.state is StudyState.FINISHED:
            end = replace(end, reason="; ".join(reasons))
            if waiting:
                left = ", ".join(f"trial {trial}" for trial in waiting)
                reason = f"{end.reason}; left for `tuner study resume {self._record.name}`: {left}"
                end = replace(end, state=StudyState.STOPPED, reason=reason)
        self._store.set_state(self._record.name, end.state, end.reason)
        return end

    def _affordable(self, attempts: list[AttemptRecord]) -> float:
        """Launches of the usual length for which the budget has time left; infinite without a limit."""
        budget, spent = self._record.space.budget, self._spent(attempts)
        seconds = [a.ran_s for a in attempts if a.report is not None]
        usual = statistics.fmean(seconds) / 3600 if seconds else 0.0
        limits = (
            (budget.hours, spent.hours, usual),
            (budget.gpu_hours, spent.gpu_hours, usual * max(self._gpus, 1)),
        )
        return min(
            ((limit - used) / each for limit, used, each in limits if limit is not None and each > 0), default=math.inf
        )

    def _spent(self, attempts: list[AttemptRecord]) -> Spent:
        seconds = sum(a.ran_s for a in attempts)
        return Spent(trials_spent(attempts), self._watch.hours, seconds * max(self._gpus, 1) / 3600)


class SearchAgenda:
    """Launches what the search proposes, the baseline again against drift, and second chances before the end.

    Args:
        record: the study.
        search: proposes.
        baselines: engine → baseline.
        spent: what the study has used so far, launches in hand left out.
        reserved: launches of the budget that are kept for the confirmation.
        owner: who runs the study now.
        notify: hears about candidates that were not launched.
    """

    def __init__(
        self,
        record: StudyRecord,
        *,
        search: Search,
        baselines: Mapping[str, Candidate],
        spent: Callable[[list[AttemptRecord]], Spent],
        reserved: int,
        owner: str,
        notify: Callable[[StudyEvent], None],
    ) -> None:
        self._space = record.space
        self._search = search
        self._baselines = baselines
        self._spent = spent
        self._reserved = reserved
        self._owner = owner
        self._notify = notify
        self._reckoned: tuple[int, str | None] | None = None
        self._resting: set[tuple[str, str]] = set()
        self._drift_told = False

    def next(self, attempts: list[AttemptRecord], in_hand: tuple[Proposal, ...]) -> Proposal | Done | None:
        """See `tuner.study.agenda.Agenda.next`."""
        committed = self._committed(attempts, in_hand)
        if reason := spent_reason(self._space.budget, committed):
            return Done(reason)
        if in_hand and not self._baseline_known(attempts):
            # The first launch is the baseline's; nothing is worth launching beside it until it works.
            return None
        memory = memory_of(attempts)
        enough = self._enough(attempts)
        left = 0 if enough else self._space.budget.trials - committed.trials
        if not self._enqueue_second_chance(memory, attempts, in_hand, left) and enough:
            return Done(enough)
        self._tell_of_drift(attempts)
        self._enqueue_sentinel(attempts, in_hand)
        try:
            return self._ask(memory, attempts)
        except SpaceExhausted:
            return Done("every combination that the rules allow was measured")

    def _committed(self, attempts: list[AttemptRecord], in_hand: tuple[Proposal, ...]) -> Spent:
        """What is spent, in hand, or kept for a confirmation of what the search finds.

        An earlier confirmation is spent like any other launch: the search that goes on after it, since the budget was
        raised, needs one of its own. What the user asks for one by one costs the budget nothing.
        """
        spent = self._spent(attempts)
        trials = spent.trials + len(in_hand) + self._reserved
        more = 1 + min(self._reserved / len(attempts), _MOST_RESERVED) if attempts else 1.0
        return Spent(trials, spent.hours * more, spent.gpu_hours * more)

    def _enough(self, attempts: list[AttemptRecord]) -> str | None:
        """Why the search may end before its budget, if it may; reckoned once after each launch."""
        if self._space.budget.stop_below_gain is None:
            return None
        told = sum(a.told for a in attempts)
        if self._reckoned is None or self._reckoned[0] != told:
            gain = self._search.remaining_gain(self._space.budget.stop_confidence)
            self._reckoned = told, nothing_left(self._space.budget, gain, self._space.goals[0].label)
        return self._reckoned[1]

    def _ask(self, memory: FailureMemory, attempts: list[AttemptRecord]) -> Proposal:
        """A proposal that is worth a launch: what was set aside, or does nothing, is answered from memory.

        A sampler that asks for such things again and again is believed in the end.
        """
        silent = silent_settings(attempts)
        self._rest_what_does_nothing(silent)
        for _ in range(_MAX_ANSWERED):
            proposal = self._search.ask()
            if proposal.purpose is not Purpose.SEARCH:
                return proposal
            if aside := next((a for a in memory.set_aside if a.covers(proposal.candidate)), None):
                self._search.tell(proposal.trial, Infeasible(aside.failure_class))
                self._notify(Noted(f"trial {proposal.trial} was not launched: {aside}"))
                continue
            baseline = self._baselines[proposal.candidate.engine]
            plain, idle = without_silent(self._space, proposal.candidate, baseline, silent)
            if not idle:
                return proposal
            self._launch_instead(plain, idle, proposal, attempts)
        return self._search.ask()

    def _rest_what_does_nothing(self, silent: tuple[Silent, ...]) -> None:
        """Keep the search from knobs that do nothing at all, and say so once."""
        for engine in self._baselines:
            idle = {one.knob: one for one in silent if one.engine == engine and one.everywhere}
            self._search.rest(engine, idle.keys())
            for one in idle.values():
                if (engine, one.knob) not in self._resting:
                    self._resting.add((engine, one.knob))
                    self._notify(Noted(f"{one.knob} takes no part in the search: {one.reason}"))

    def _launch_instead(
        self, plain: Candidate, idle: tuple[Silent, ...], proposal: Proposal, attempts: list[AttemptRecord]
    ) -> None:
        """Answer a proposal that runs the same server as a plainer one, and queue that if it was never launched."""
        told = "; ".join(map(str, idle))
        launched = [a for a in attempts if a.candidate.fingerprint == plain.fingerprint]
        outcome = next((a.outcome for a in reversed(launched) if a.outcome is not None), None)
        unmeasured = Partial(tuple(None for _ in self._space.goals), told)
        verdict = Infeasible(outcome.failure_class) if isinstance(outcome, Failure) else unmeasured
        self._search.tell(proposal.trial, verdict)
        if not launched:
            self._search.enqueue(plain, Purpose.SEARCH)
        self._notify(Noted(f"trial {proposal.trial} was not launched: {told}"))

    def _enqueue_second_chance(
        self, memory: FailureMemory, attempts: list[AttemptRecord], in_hand: tuple[Proposal, ...], left: int
    ) -> bool:
        """Before the search ends, try what was set aside once more, the least certain first; whether one was queued."""
        waiting = memory.second_chances()
        if not waiting or left > len(waiting) or any(p.purpose is Purpose.SECOND_CHANCE for p in in_hand):
            return False
        candidate = second_chance(self._space, waiting[0], attempts)
        if candidate is None:
            return False
        self._search.enqueue(candidate, Purpose.SECOND_CHANCE)
        return True

    def _baseline_known(self, attempts: list[AttemptRecord]) -> bool:
        return any(a.purpose is Purpose.BASELINE and a.state is AttemptState.MEASURED for a in attempts)

    def _tell_of_drift(self, attempts: list[AttemptRecord]) -> None:
        """Say once, while something can still be done about it, that the baseline is no longer what it was."""
        measured = [a for a in attempts if a.state is AttemptState.MEASURED]
        if not self._drift_told:
            for caution in machine_drift(self._space, measured):
                self._drift_told = True
                self._notify(Noted(f"warning: {caution}"))

    def _enqueue_sentinel(self, attempts: list[AttemptRecord], in_hand: tuple[Proposal, ...]) -> None:
        """Relaunch the baseline every so many search trials, so that drift of the machine shows; oftener while it does.

        What is launched meanwhile is compared with the baseline of its time (docs/adr/0005), which must be known. So it
        comes first where a search goes on elsewhere, or after the machine was started anew.
        """
        every = self._space.budget.sentinel_every
        if not every or any(p.purpose is Purpose.SENTINEL for p in in_hand):
            return
        sentinels = {a.trial for a in attempts if a.purpose is Purpose.SENTINEL}
        searched = {a.trial for a in attempts if a.purpose is Purpose.SEARCH}
        due = len(searched) >= every * (len(sentinels) + 1)
        if not due and sentinels and BaselineLevels(self._space, attempts).is_drifting:
            due = sum(trial > max(sentinels) for trial in searched) >= max(1, every // _MORE_SENTINELS)
        here = {a.purpose for a in attempts if same_boot(a.lease_owner, self._owner)}
        if due or (searched and not here & BASELINE_PURPOSES):
            self._search.enqueue(next(iter(self._baselines.values())), Purpose.SENTINEL)
