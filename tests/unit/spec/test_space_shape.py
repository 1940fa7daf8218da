"""What a space file may say at all; every mistake is reported, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.space_files import Errors, Load

from tuner.errors import SpecError
from tuner.spec import load_space


def test_words_become_values_where_values_stand(load: Load) -> None:
    space = load(
        """
knobs:
  a: {values: [unset, on, off, "on", 1], flag: --backend, prior: {likely: [unset], reason: r}, when: b == on}
  b: {switch: on, flag: --mixed}
""".replace("flag: --backend", "env: X")
    ).space
    assert space.knobs["a"].values == (None, True, False, "on", 1)
    assert space.knobs["a"].prior is not None
    assert space.knobs["a"].prior.likely == (None,)
    assert space.knobs["b"].switch is True


def test_names_and_variables_keep_their_words(load: Load) -> None:
    loaded = load("description: on\nengines: {engine: {env: {A: on, B: 1, C: true}, flags: {--mixed: on}}}\n")
    engine = loaded.space.engines["engine"]
    assert loaded.space.description == "on"
    assert engine.env == {"A": "on", "B": 1, "C": True}
    assert engine.flags == {"--mixed": True}


def test_an_unknown_key_has_a_suggestion(errors: Errors) -> None:
    assert errors("knobs:\n  a:\n    valeus: [1]\n    env: A\n")[0] == (
        "s.yaml:5:5 knobs.a.valeus: unknown key (did you mean values?)"
    )
    assert errors("engines:\n  engine:\n    verzion: '1'\n") == [
        "s.yaml:5:5 engines.engine.verzion: unknown key (did you mean version?)"
    ]
    assert errors("zzz: 1\n")[0].startswith("s.yaml:3:1 zzz: unknown key (known here: name, description")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("knobs:\n  a: {int: {low: 4, high: 1}, env: A}\n", "s.yaml:4:12 knobs.a.int: low 4 is above high 1"),
        ("knobs:\n  A: {switch: on, env: A}\n", "s.yaml:4:3 knobs.A: must be lower-case letters"),
        ("knobs:\n  engine: {switch: on, env: A}\n", "s.yaml:4:3 knobs.engine: engine is what conditions call"),
        ("knobs:\n  a: {switch: on, env: A B}\n", "s.yaml:4:24 knobs.a.env: must look like an environment variable"),
        ("knobs:\n  a: {switch: on, flag: mixed}\n", "s.yaml:4:25 knobs.a.flag: must look like a flag"),
        ("knobs:\n  a: {values: [], env: A}\n", "values is empty"),
        ("knobs:\n  a: {env: A}\n", "give exactly one of values, switch, int, float"),
        ("knobs:\n  a: 3\n", "s.yaml:4:6 knobs.a: must be a mapping"),
        ("knobs: [a]\n", "s.yaml:3:8 knobs: must be a mapping"),
        ("rules: {forbid: a}\n", "s.yaml:3:8 rules: must be a list"),
        ("rules: [{because: x}]\n", "s.yaml:3:9 rules[0]: forbid is missing"),
        ("engines: {}\n", "s.yaml:3:10 engines: must have at least 1 item, not 0"),
        ("hardware: {gpus: -1}\n", "s.yaml:3:18 hardware.gpus: must be greater than or equal to 0"),
        ("hardware: {gpus: 1000000000000}\n", "s.yaml:3:18 hardware.gpus: must be less than or equal to 1024"),
        ("budget: {trials: 1000000000000}\n", "s.yaml:3:18 budget.trials: must be less than or equal to 1000000"),
        ("budget: {launch_timeout_s: 1e30}\n", "3:28 budget.launch_timeout_s: must be less than or equal to 31536000"),
        (f"budget: {{hours: {'9' * 5000}}}\n", "s.yaml:3:17 budget.hours: must be less than or equal to 8760"),
        ("budget: {gpu_hours: 1e300}\n", "s.yaml:3:21 budget.gpu_hours: must be less than or equal to 8970240"),
        ("budget: {sentinel_every: 100000000000000000000}\n", "budget.sentinel_every: must be less than or equal to"),
        ("workload: {levels: [1, 1000000]}\n", "s.yaml:3:24 workload.levels[1]: must be less than or equal to 65535"),
        ("workload: {levels: []}\n", "levels is empty: give one or more"),
        ("workload: {rates: [1e300]}\n", "s.yaml:3:20 workload.rates[0]: must be less than or equal to 1000000"),
        ("workload: {input_tokens: 1000000000000}\n", "workload.input_tokens: must be less than or equal to 100000000"),
        ("workload: {repeats: 100000000}\n", "s.yaml:3:21 workload.repeats: must be less than or equal to 1000"),
        ("workload: {goodput: {ttft_ms: 1e300}}\n", "workload.goodput.ttft_ms: must be less than or equal to"),
        ("workload: {seed: 99999999999999999999}\n", "workload.seed: must be less than or equal to"),
        (f"knobs:\n  {'k' * 600}: {{switch: on, env: A}}\n", "must have at most 100 characters"),
        ("objectives: [{level: 100000000000}]\n", "objectives[0].level: must be less than or equal to 65535"),
        ("hardware: {compute_capability: sm90}\n", 'must look like "12.0", in quotes'),
        ("workload: {levels: [8, 1]}\n", "s.yaml:3:20 workload.levels: must ascend without repetition"),
        ("workload:\n  seed: 1\n  rates: [2, 2]\n", "s.yaml:5:10 workload.rates: must ascend without repetition"),
        ("objectives: [{level: 7}]\n", "s.yaml:3:22 objectives[0].level: level 7 is not among"),
        ("objectives: [{level: 1}, {level: 1}]\n", "s.yaml:3:26 objectives[1]: a second objective output_tok_s@1"),
        ("objectives: [{level: 1, metric: output_toks}]\n", "did you mean output_tok_s?"),
        ("limits: [{metric: output_tok_s, level: 1}]\n", "give exactly one of max, min"),
        ("limits: [{metric: output_tok_s, level: 2, min: 1}]\n", "limits[0].level: level 2 is not among"),
        ("objectives: [{metric: ttft_p99_ms}]\n", "s.yaml:3:14 objectives[0]: give level (requests in flight at any"),
        ("objectives: [{rate: 1, level: 1}]\n", "s.yaml:3:14 objectives[0]: give level or rate, not both"),
        ("objectives: [{rate: 5}]\n", "s.yaml:3:21 objectives[0].rate: rate 5 is not sent: the workload has no rates"),
        ("objectives: [{rate: -5}]\n", "s.yaml:3:21 objectives[0].rate: must be greater than 0"),
        (
            "workload: {rates: [1, 2.5]}\nlimits: [{metric: ttft_p99_ms, rate: 5, max: 1}]\n",
            "limits[0].rate: rate 5 is not among the workload's rates 1, 2.5 (add it to workload.rates)",
        ),
        ("budget: {trials: 0}\n", "s.yaml:3:18 budget.trials: must be greater than 0"),
        ("budget: {trials: many}\n", "s.yaml:3:18 budget.trials: must be a whole number, not many"),
        ("budget: {trials: 1.5}\n", "s.yaml:3:18 budget.trials: must be a whole number, not 1.5"),
        ("budget: {trials: true}\n", "s.yaml:3:18 budget.trials: must be a whole number, not true"),
        ("hardware: {gpus: true}\n", "s.yaml:3:18 hardware.gpus: must be a whole number, not true"),
        ("budget: {hours: true}\n", "s.yaml:3:17 budget.hours: must be a number, not true"),
        ("workload: {levels: [true]}\n", "s.yaml:3:21 workload.levels[0]: must be a whole number, not true"),
        ("workload: {rates: [false]}\n", "s.yaml:3:20 workload.rates[0]: must be a number, not false"),
        ("workload: {input_tokens: true}\n", "s.yaml:3:26 workload.input_tokens: must be a whole number, not true"),
        ("output_check: {tokens: true}\n", "s.yaml:3:24 output_check.tokens: must be a whole number, not true"),
        ("objectives: [{level: true}]\n", "s.yaml:3:22 objectives[0].level: must be a whole number, not true"),
        ("limits: [{metric: output_tok_s, level: 1, min: true}]\n", "limits[0].min: must be a number, not true"),
        ("knobs: {a: {int: {low: false, high: 2}, env: A}}\n", "knobs.a.int.low: must be a whole number, not false"),
        ("knobs: {a: {float: {low: 0, high: true}, env: A}}\n", "knobs.a.float.high: must be a number, not true"),
        ("budget: {hours: long}\n", "s.yaml:3:17 budget.hours: must be a number, not long"),
        ("budget: {cut_short: maybe}\n", "s.yaml:3:21 budget.cut_short: must be true or false, not maybe"),
        ("description: [a]\n", "s.yaml:3:14 description: must be a text"),
        ("workload: {levels: 1}\n", "s.yaml:3:20 workload.levels: must be a list"),
        ("engines: {engine: {baseline: {command: x, set: {a: 1}}}}\n", "give command or set, not both"),
    ],
)
def test_a_mistake_is_named_with_its_place(errors: Errors, text: str, problem: str) -> None:
    found = errors(text)
    assert any(problem in one for one in found), found
    assert all(one.startswith("s.yaml:") for one in found)


def test_a_condition_error_points_into_the_condition(errors: Errors) -> None:
    (problem,) = errors("knobs:\n  a:\n    switch: on\n    flag: --mixed\n    when: a == 1 b\n")
    assert problem.startswith("s.yaml:7:18 knobs.a.when: unexpected 'b'")


def test_many_mistakes_are_reported_in_one_go(errors: Errors) -> None:
    found = errors(
        """
modle: x
knobs:
  a: {int: {low: 4, high: 1}, flag: --max-running}
  b: {values: [x], flag: --memroy}
  c: {values: [tritn], flag: --backend, default: tritn}
  d: {values: [1], env: D, when: e == on}
rules:
  - forbid: b =
  - forbid: c == flash
objectives:
  - {level: 99}
  - {level: 1, metric: nothing}
"""
    )
    for words in (
        "modle: unknown key",
        "knobs.a.int: low 4 is above high 1",
        "--memroy is unknown in engine 1.0 (did you mean --memory?)",
        "--backend does not take tritn",
        "there is no knob e",
        "rules[0].forbid: unexpected '='",
        "rules[1].forbid: c is never flash",
        "objectives[0].level: level 99",
        "objectives[1].metric: 'nothing' is not known",
    ):
        assert sum(words in problem for problem in found) == 1, words
    lines = [int(problem.split(":")[1]) for problem in found]
    assert lines == sorted(lines)


@pytest.mark.parametrize(
    ("workload", "place"),
    [
        ("{levels: [1, 17], rates: [5], repeats: none, goodput: {ttft_ms: 500}}", "workload.repeats"),
        ("{levels: [1, x], rates: [5], goodput: {ttft_ms: 500}}", "workload.levels[1]"),
        ("{level: [1, 17], rates: [5], goodput: {ttft_ms: 500}}", "workload.level"),
        ("{levels: [1, 17], rates: [0], goodput: {ttft_ms: 500}}", "workload.rates[0]"),
        ("{levels: [1, 17], rates: [5], goodput: {ttft: 500}}", "workload.goodput.ttft"),
        ("{levels: [17, 1], rates: [5], goodput: {ttft_ms: 500}}", "workload.levels"),
        ("{levels: [1, 17], rates: [5], goodput: {ttft_ms: 500}, single_stream_max_requests: 1}", "workload"),
    ],
)
def test_goals_are_not_judged_by_the_default_of_what_cannot_be_read(errors: Errors, workload: str, place: str) -> None:
    found = errors(
        f"workload: {workload}\nobjectives: [{{level: 17}}]\nlimits: [{{metric: goodput_s, rate: 5, min: 1}}]\n"
    )
    assert {one.split()[1] for one in found} == {f"{place}:"}


def test_goals_are_judged_by_what_can_be_read_of_a_workload(errors: Errors) -> None:
    found = errors("workload: {levels: [1, 17], repeats: none}\nobjectives: [{level: 8}, {rate: 5}]\n")
    assert len(found) == 3
    assert "level 8 is not among the workload's levels 1, 17" in found[1]
    assert "the workload has no rates" in found[2]


def test_nothing_is_said_about_conditions_on_a_knob_that_cannot_be_read(errors: Errors) -> None:
    found = errors(
        """
knobs:
  a: {int: {low: 4, high: 1}, flag: --max-running}
  b: {switch: on, flag: --mixed, when: a > 2}
rules:
  - forbid: a == 9
"""
    )
    assert len(found) == 1


@pytest.mark.parametrize("text", ["", "# only a comment\n", "just words\n", "- a\n- b\n", "3\n"])
def test_a_file_that_is_no_space(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(SpecError, match=r"s\.yaml"):
        load_space(tmp_path / "s.yaml", catalogues={})


def test_name_and_model_are_needed(errors: Errors) -> None:
    found = errors("description: 'name:'\nengines: {engine: {}}\n")
    assert any("name is missing" in problem for problem in found)
    assert any("model is missing" in problem for problem in found)


def test_overrides_replace_what_the_file_says(load: Load, errors: Errors) -> None:
    loaded = load("budget: {trials: 3}\n", **{"budget.trials": 7, "budget.hours": 0.5, "model": "other"})
    assert (loaded.space.budget.trials, loaded.space.budget.hours, loaded.space.model) == (7, 0.5, "other")
    assert loaded.text.startswith("name: t\nmodel: m\nbudget: {trials: 3}")
    (problem,) = errors("", **{"budget.trials": 0})
    assert problem == "command line: budget.trials: must be greater than 0"


def test_the_hash_is_about_meaning(load: Load) -> None:
    text = "knobs:\n  a: {values: [1, 2], env: A, default: 1}\n"
    same = load(text).hash
    assert load("# words\n" + text + "description: d\nbudget: {trials: 9}\n").hash == same
    assert load(text.replace("[1, 2]", "[1, 2, 3]")).hash != same
    assert load(text, model="other").hash != same


def test_a_part_without_anything_in_it_is_reported_once(errors: Errors) -> None:
    assert errors("name: t\nmodel: m\nengines:\n") == [
        "s.yaml:3:1 engines: is empty: it must be a mapping (key: value)"
    ]


def test_an_empty_file_says_what_belongs_into_it(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("")
    with pytest.raises(SpecError, match=r"the file is empty \(it needs name, model and engines"):
        load_space(tmp_path / "s.yaml", catalogues={})
