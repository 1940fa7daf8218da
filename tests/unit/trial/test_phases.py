"""The three clocks, told the time by the test."""

from __future__ import annotations

import itertools

import pytest

from tuner.domain.outcome import Phase
from tuner.trial.deadlines import MARGIN_S, PhaseDeadlines, learn_limits
from tuner.trial.phases import Clock, LaunchClocks

LIMITS = PhaseDeadlines(launch_timeout_s=1000, silence_s=200, learned=dict.fromkeys(list(Phase)[1:10], 145.0))
WORDS = {
    "importing": Phase.IMPORT,
    "loading": Phase.WEIGHTS,
    "compiling": Phase.COMPILE,
    "capturing": Phase.GRAPH_CAPTURE,
    "warming": Phase.WARMUP,
    "serving": Phase.SERVING,
}


def phase_of(line: str) -> Phase | None:
    return WORDS.get(line.split()[0])


class Launch:
    """A launch of which every line is given with its time."""

    def __init__(self, limits: PhaseDeadlines = LIMITS) -> None:
        self.clocks = LaunchClocks(limits, began=0.0)
        self.bytes = 0

    def says(self, line: str, at: float) -> Launch:
        self.bytes += len(line)
        self.clocks.observe([line], self.bytes, phase_of, at)
        return self

    def overdue_at(self, now: float) -> Clock | None:
        overdue = self.clocks.overdue(now)
        return overdue.clock if overdue else None


def test_a_launch_in_time_is_not_overdue() -> None:
    launch = Launch().says("importing", 5).says("loading 1", 50)
    assert launch.overdue_at(100) is None


def test_silence_ends_a_launch_before_its_phase_would() -> None:
    patient = PhaseDeadlines(launch_timeout_s=1000, silence_s=100, learned={})
    launch = Launch(patient).says("loading 1", 10)
    assert launch.overdue_at(109) is None
    assert launch.overdue_at(111) is Clock.SILENCE


def test_an_empty_log_is_no_silence_but_its_phase_is_bounded() -> None:
    patient = PhaseDeadlines(launch_timeout_s=1000, silence_s=100, learned={})
    launch = Launch(patient)
    assert launch.overdue_at(299) is None
    assert launch.overdue_at(301) is Clock.PHASE


def test_time_that_others_took_is_not_held_against_a_launch() -> None:
    launch = Launch().says("importing", 5).says("loading 1", 10)
    launch.clocks.starved(200)
    assert launch.overdue_at(10 + 145 + 200) is None
    assert launch.overdue_at(10 + 145 + 201) is Clock.PHASE


def test_what_was_taken_before_a_phase_does_not_extend_it() -> None:
    launch = Launch()
    launch.clocks.starved(100)
    launch.says("loading 1", 110)
    assert launch.overdue_at(110 + 146) is Clock.PHASE


def test_a_starved_launch_ends_at_three_times_its_limit_and_the_host_is_to_blame() -> None:
    launch = Launch().says("loading 1", 10)
    launch.clocks.starved(420)
    overdue = launch.clocks.overdue(10 + 3 * 145 + 1)
    assert overdue is not None
    assert overdue.by_host
    assert "other processes had the CPU" in str(overdue)


def test_a_launch_that_had_its_time_is_to_blame_itself_however_busy_the_host() -> None:
    launch = Launch().says("loading 1", 10)
    launch.clocks.starved(200)
    overdue = launch.clocks.overdue(10 + 145 + 201)
    assert overdue is not None
    assert not overdue.by_host


def test_a_little_load_does_not_excuse_a_launch_that_runs_into_its_timeout() -> None:
    chatty = Launch(PhaseDeadlines(launch_timeout_s=1000, silence_s=900, learned={}))
    chatty.says("loading 1", 900)
    chatty.clocks.starved(20)
    overdue = chatty.clocks.overdue(1001)
    assert overdue is not None
    assert overdue.clock is Clock.LAUNCH
    assert not overdue.by_host


def test_any_byte_resets_the_silence_clock_but_no_other() -> None:
    launch = Launch().says("importing", 0)
    for second in range(1, 150):
        launch.says("chatter", second)
    assert launch.overdue_at(150) is Clock.PHASE


def test_counted_progress_extends_its_own_phase() -> None:
    launch = Launch().says("compiling 1", 10)
    for second in range(100, 900, 100):
        launch.says(f"compiling {second}", second)
    assert launch.overdue_at(900) is None


def test_the_same_line_again_is_no_progress() -> None:
    launch = Launch().says("compiling kernel", 10)
    for second in range(11, 156):
        launch.says("compiling kernel", second)
    assert launch.overdue_at(156) is Clock.PHASE


def test_progress_never_extends_a_launch_beyond_its_timeout() -> None:
    launch = Launch().says("compiling 0", 10)
    for second in range(100, 1001, 100):
        launch.says(f"compiling {second}", second)
    assert launch.overdue_at(1001) is Clock.LAUNCH


def test_progress_of_an_earlier_phase_does_not_satisfy_a_later_one() -> None:
    launch = Launch().says("compiling 1", 10).says("capturing 1", 20)
    for second in range(21, 166):
        launch.says(f"compiling {second}", second)
    assert launch.clocks.phase is Phase.GRAPH_CAPTURE
    assert launch.overdue_at(166) is Clock.PHASE


def test_lines_of_a_phase_that_counts_nothing_do_not_extend_it() -> None:
    launch = Launch().says("importing a", 1)
    for second in range(2, 147):
        launch.says(f"importing {second}", second)
    assert launch.overdue_at(147) is Clock.PHASE


def test_a_server_that_says_it_is_up_but_generates_nothing_is_hung() -> None:
    launch = Launch().says("warming", 10)
    for second in range(11, 156, 5):
        launch.says("throughput 0 tok/s", second)
    overdue = launch.clocks.overdue(156)
    assert overdue is not None
    assert overdue.clock is Clock.TOKENS
    assert "generated no token for 146 s" in str(overdue)


def test_claiming_to_be_up_twice_does_not_start_the_token_clock_anew() -> None:
    launch = Launch().says("warming", 10).says("serving", 140).says("serving", 150)
    assert launch.overdue_at(156) is Clock.TOKENS


@pytest.mark.parametrize("stuck", [Phase.IMPORT, Phase.WEIGHTS, Phase.COMPILE, Phase.GRAPH_CAPTURE, Phase.WARMUP])
def test_a_hang_costs_at_most_twice_the_median_good_launch_plus_a_minute(stuck: Phase) -> None:
    order = [Phase.SPAWN, Phase.IMPORT, Phase.WEIGHTS, Phase.COMPILE, Phase.GRAPH_CAPTURE, Phase.WARMUP]
    good = dict(zip(order, [5.0, 40.0, 60.0, 30.0, 20.0, 10.0], strict=True))
    limits = PhaseDeadlines.of(3600, learn_limits([good] * 3))
    launch, now = Launch(limits), 0.0
    names = {phase: word for word, phase in WORDS.items()}
    for before, phase in itertools.pairwise(order):
        now += good[before] * 1.3  # a slower launch than usual
        launch.says(names[phase], now)
        if phase is stuck:
            break
    while launch.overdue_at(now) is None:
        now += 1
        launch.says("chatter", now)
    assert now <= 2 * sum(good.values()) + 60
    assert now <= 2 * sum(good.values()) + MARGIN_S + 2


def test_phase_seconds_add_up_to_the_launch_and_keep_their_order() -> None:
    launch = Launch().says("importing", 5).says("loading", 50).says("compiling", 90).says("loading late", 95)
    seconds = launch.clocks.close(100)
    assert list(seconds.items()) == [(Phase.SPAWN, 5), (Phase.IMPORT, 45), (Phase.WEIGHTS, 40), (Phase.COMPILE, 10)]
