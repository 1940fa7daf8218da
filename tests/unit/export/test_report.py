"""The report: everything that was found, in a page that needs no network, and as text, JSON and rows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from support import findings as made
from support import records

from tuner.domain.candidate import Candidate
from tuner.domain.front import Estimate, Front, Standing
from tuner.domain.measurement import MeasuredInPart
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Activity, KnobActivity, Purpose
from tuner.export.report import Findings, report_of
from tuner.export.report_formats import report_html, report_json, report_markdown
from tuner.export.report_plots import front_figure
from tuner.study.confirm import confirmation_of
from tuner.study.summary import baselines_of


class Page(HTMLParser):
    """What a browser would load, and the text that it would show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.words: list[str] = []
        self._skip = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skip += tag in ("script", "style")
        self.loaded += [
            value or "" for name, value in attrs if name in ("src", "href") and not (value or "").startswith("#")
        ]

    def handle_endtag(self, tag: str) -> None:
        self._skip -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._skip:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def html() -> str:
    return report_html(made.findings())


def test_the_page_loads_nothing_and_holds_the_library_once(html: str) -> None:
    assert Page(html).loaded == []
    assert len(re.findall(r"plotly\.js v\d", html)) == 1
    assert "@import" not in html


def test_the_headline_is_the_confirmed_change_with_its_interval(html: str) -> None:
    text = Page(html).text
    assert "in 3 interleaved rounds: single_stream faster (+41.5 %), throughput slower (-2.0 %)." in text
    assert "+41.5 % +40.5 % to +42.5 %, 95 %; 3 interleaved rounds" in text
    assert "nccl_proto: unset → LL" in text


def test_every_section_is_there_with_its_drawings(html: str) -> None:
    text = Page(html).text
    for title in ("Warnings", "Confirmation", "Front", "What each setting contributes", "Load", "Failures",
                  "Knob activity", "Output check", "Machine", "Commands"):  # fmt: skip
        assert title in text, title
    for name in ("front", "ablation", "load"):
        assert f'id="figure-{name}"' in html
    told = ("no measurable effect", "nccl_config", "nothing reads this flag", "76 of 80", "580.95.05", "power_cap")
    for words in (*told, "winner_at_edge", "#!/usr/bin/env bash"):
        assert words in text, words


def launch_of(attempt: AttemptRecord, number: int, purpose: Purpose, **changes: object) -> AttemptRecord:
    """Another launch of a configuration; its report has `changes`."""
    assert attempt.report is not None
    report = replace(attempt.report, **changes)  # type: ignore[arg-type]
    return replace(attempt, id=number, trial=number, purpose=purpose, block=None, report=report)


def table_of(found: Findings, title: str) -> str:
    """One section of the report as text."""
    return report_markdown(found).split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_what_a_verification_launch_found_counts_among_the_knob_activity() -> None:
    found = made.findings()
    said = (KnobActivity("nccl_proto", Activity.INACTIVE, "the engine's own all-reduce serves decode steps"),)
    silent = MeasuredInPart((), simulated=True, reason="launched to see which settings act")
    check = launch_of(found.attempts[5], 12, Purpose.VERIFY, activity=said, outcome=silent)
    verified = replace(found, attempts=[*found.attempts, check])
    assert "own all-reduce" not in table_of(found, "Knob activity")
    assert "| 5 | nccl_proto | inactive | the engine's own all-reduce serves" in table_of(verified, "Knob activity")
    assert "measured in part" not in report_markdown(verified), "a verification was not beaten by anything"


def test_launches_with_wrong_answers_are_counted_beside_the_output_check() -> None:
    found = made.findings()
    wrong = Failure(FailureClass.WRONG_OUTPUT, Phase.SERVING, ("asked: …",))
    excluded = [launch_of(found.attempts[3], number, Purpose.SEARCH, outcome=wrong) for number in (12, 13)]
    told = "Wrong answers, excluded whatever the speed: 2 launches (trials 12, 13)."
    assert told not in table_of(found, "Output check")
    assert told in table_of(replace(found, attempts=[*found.attempts, *excluded]), "Output check")


def test_the_front_s_line_joins_what_no_other_member_s_centre_beats() -> None:
    def member(trial: int, single: float, loaded: float) -> Standing:
        candidate = Candidate("simulated", {"decode_steps": trial})
        return Standing((trial,), candidate, (Estimate(single), Estimate(loaded)))

    members = (member(1, 60, 500), member(2, 90, 300), member(3, 55, 400), member(4, 80, 450))
    figure = front_figure(Front(made.SPACE.goals, members, (), (), None), None, None)
    line = drawn(figure)[0]
    assert (line["mode"], line["x"], line["y"]) == ("lines", [500, 450, 300], [60, 80, 90])


def drawn(figure: str | None) -> list[dict[str, Any]]:
    """The traces of a drawing."""
    assert figure is not None
    traces: list[dict[str, Any]] = json.JSONDecoder().raw_decode(figure[figure.index('[{"') :])[0]
    return traces


def test_what_was_confirmed_stands_in_front_table_and_drawing_with_the_confirmation_s_numbers() -> None:
    found = made.findings()
    assert found.confirmation is not None
    base, winner = found.confirmation.arms
    values = tuple(Estimate(value, value - 1, value + 1, 3) for value in (1234.5, 2345.6))
    told = replace(found, confirmation=replace(found.confirmation, arms=(base, replace(winner, values=values))))
    table = table_of(told, "Front")
    (row,) = [line for line in table.splitlines() if "chosen" in line]
    assert "| 1,234 ±1.0 | 2,346 ±1.0 |" in row
    assert "confirmed" in row
    assert "What is `confirmed` has the mean of the confirmation's launches alone" in table
    report = report_of(told)
    traces = drawn(front_figure(report.front, report.chosen, report.confirmation))
    (chosen,) = [trace for trace in traces if trace.get("name") == "chosen"]
    assert (chosen["x"], chosen["y"]) == ([2345.6], [1234.5])
    assert "trial 5, confirmed by 3 launches" in chosen["text"][0]
    others = [text for trace in traces if trace.get("name") == "beaten" for text in trace["text"]]
    assert all("confirmed" not in text for text in others)


def test_without_a_confirmation_the_front_s_table_tells_of_none() -> None:
    assert "confirmed" not in table_of(replace(made.findings(), confirmation=None), "Front")


def test_one_configuration_has_one_name_in_all_sections() -> None:
    confirmation = table_of(made.findings(), "Confirmation")
    assert "Trial 5 against the baseline" in report_of(made.findings()).verdict
    assert "| 5 | nccl_proto=LL, decode_steps=4 | 3 (7, 9, 11) |" in confirmation
    assert "| 0 | baseline | 3 (6, 8, 10) |" in confirmation


def test_a_confirmed_configuration_that_cannot_be_recommended_says_why() -> None:
    found = made.confirmation()
    base, winner = found.arms
    simpler = replace(winner, trial=3, trials=(20, 21), candidate=made.OTHER)
    beaten = replace(winner, failures=1, broken={"ttft_p99_ms at C=1": 0.25}, yields_to=3)
    told = replace(found, arms=(base, simpler, beaten), chosen=simpler)
    text = table_of(replace(made.findings(), confirmation=told), "Confirmation")
    reason = "failed in 1 of 3 launches; breaks ttft_p99_ms at C=1 by 25.0 %; not better than the simpler trial 3"
    assert reason in text


def test_the_output_check_says_how_many_tokens_could_be_compared() -> None:
    assert "| 97.0 % of 256 | 95.0 % of 2,048 | 0.030 |" in table_of(made.findings(), "Output check")


def test_no_number_of_launches_makes_a_gain_certain() -> None:
    found = made.confirmation()
    base, winner = found.arms
    sure = replace(winner, effects=tuple(replace(e, better=b) for e, b in zip(winner.effects, (1.0, 0.0), strict=True)))
    text = table_of(
        replace(made.findings(), confirmation=replace(found, arms=(base, sure), chosen=sure)), "Confirmation"
    )
    assert "| > 99.9 % |" in text
    assert "| < 0.1 % |" in text


def test_the_command_is_told_without_what_the_report_says_elsewhere() -> None:
    text = table_of(made.findings(), "Commands")
    chosen = text.split("### The chosen configuration (trial 5)")[1].split("### The baseline (trial 0)")[0]
    assert chosen.strip().startswith("```\n#!/usr/bin/env bash\n\nset -euo pipefail")
    assert 'exec env -i "${server_env[@]}" "${server[@]}" "$@"' in chosen
    assert "recorded:" not in chosen
    assert "`tuner export night --pick 5 -o serve.sh`" in text


def test_load_is_told_as_numbers_too_and_of_the_confirmation_s_launches_alone() -> None:
    confirmed = table_of(made.findings(), "Load")
    assert "| trial 5 | 3 | C=128 | 2,322 ±" in confirmed
    assert "; of baseline and trial 5 the confirmation's launches alone." in confirmed
    searched = table_of(replace(made.findings(), confirmation=None), "Load")
    assert "| trial 5 | 4 | C=128 | 2,322 ±" in searched
    assert "the confirmation's launches alone" not in searched


def test_an_ablation_tells_the_whole_gain_and_how_the_minimal_configuration_compares() -> None:
    text = table_of(made.findings(), "What each setting contributes")
    assert "together, in the same rounds: single_stream +41.5 % [+40.5 %, +42.5 %] (faster), throughput -2.0 %" in text
    assert "Minimal configuration: nccl_proto=LL, decode_steps=4 (trial 5). Against the full winner: single_str" in text
    assert "| nccl_proto | unset → LL | leave one out | 3 | +31.0 % [+30.0 %, +32.0 %] |" in text


def test_the_verdict_says_when_fewer_settings_are_enough() -> None:
    words = "As far as launches can tell, less is enough: decode_steps=2 (trial 3)."
    apart = replace(made.ablation(), winner=made.WINNER, minimal=made.OTHER)
    assert report_of(replace(made.findings(), ablation=apart)).verdict.endswith(words)
    of_another = replace(apart, winner=made.FULL)
    unfinished = replace(apart, complete=False)
    nothing_dropped = replace(apart, minimal=made.WINNER, minimal_effects=())
    for other in (of_another, unfinished, nothing_dropped, None):
        assert "enough" not in report_of(replace(made.findings(), ablation=other)).verdict


def test_several_knobs_that_are_one_setting_are_named_with_their_values() -> None:
    found = made.ablation()
    both = replace(found.rows[0], setting="ranks + cores", values={"ranks": (1, 2), "cores": (None, "0|1")})
    text = table_of(replace(made.findings(), ablation=replace(found, rows=(both,))), "What each setting contributes")
    assert "| ranks + cores | ranks: 1 → 2, cores: unset → 0\\|1 |" in text


def test_a_simulated_study_says_so_at_the_top_and_a_measured_one_does_not(html: str) -> None:
    assert Page(html).text.split("night (simulated)")[1].strip().startswith("– tuner SIMULATED")
    assert "SIMULATED –" not in Page(report_html(made.findings(simulated=False))).text


def test_text_from_outside_is_shown_and_never_run(html: str) -> None:
    assert "<b>a|b</b>" not in re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert "/tmp/<b>a|b</b>" in Page(html).text


def test_markdown_keeps_cells_apart_and_names_every_section() -> None:
    text = report_markdown(made.findings())
    assert text.startswith("# night\n\n**SIMULATED")
    for line in (line for line in text.splitlines() if line.startswith("| beaten")):
        assert len(re.findall(r"(?<!\\)\|", line)) == 7
    assert "## Output check" in text


def test_json_holds_the_same_sections_as_tables() -> None:
    document = json.loads(report_json(made.findings()))
    assert (document["study"], document["simulated"]) == ("night", True)
    assert document["headlines"][0]["change"] == "+41.5 %"
    tables = {section["title"]: section["tables"] for section in document["sections"]}
    assert tables["Failures"][0]["rows"][0][0] == "nccl_config"


def test_a_study_without_any_launch_still_has_a_report() -> None:
    empty = Findings(records.study(), [])
    assert report_of(empty).verdict == "No configuration was measured that keeps every limit."
    assert "no launch failed" in Page(report_html(empty)).text


def test_without_confirmation_the_verdict_claims_no_proof() -> None:
    found = replace(made.findings(), confirmation=None, ablation=None)
    report = report_of(found)
    assert "not confirmed" in report.verdict
    assert "not interleaved" in report.headlines[0].interval


def test_with_two_engines_the_headline_compares_the_chosen_one_with_its_own_engine_s_baseline() -> None:
    space = records.space().model_copy(
        update={"engines": dict.fromkeys(("simulated", "vllm"), records.space().engines["simulated"])}
    )
    arms = [
        (Candidate("simulated", {"decode_steps": 1}), 50.0),
        (Candidate("vllm", {"decode_steps": 1}), 54.0),
        (Candidate("vllm", {"decode_steps": 4}), 64.0),
    ]
    launches = [
        records.attempt(n, arm, records.measured_report(speed, 2000.0), purpose=Purpose.BASELINE)
        for n, (arm, speed) in enumerate(arms[:2])
    ]
    for block in range(3):
        for arm, speed in arms:
            found = records.measured_report(speed * (1 + 0.001 * block), 2000.0 + 5 * block)
            launches.append(records.attempt(len(launches), arm, found, purpose=Purpose.CONFIRM, block=block))
    study = replace(records.study(), space=space)
    confirmation = confirmation_of(space, launches, baselines_of(launches))
    report = report_of(Findings(study, launches, (), confirmation, None, None))
    headline = report.headlines[0]
    assert (headline.baseline.split()[0], headline.chosen.split()[0], headline.change) == ("54.1", "64.1", "+18.5 %")
    assert "against vllm's baseline" in report.verdict
    assert report.settings == ("decode_steps: 1 → 4",)
