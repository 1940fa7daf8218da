"""The shipped spaces are sound, and what is said about a file full of mistakes stays as it was agreed on."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tuner import yamlfile
from tuner.domain.candidate import Candidate
from tuner.engines.catalogue import catalogues, load_catalogue
from tuner.errors import SpecError
from tuner.resources import spaces_dirs
from tuner.spec import baseline_of, load_space, space_schema, space_size

SHIPPED = sorted(spaces_dirs()[-1].glob("*.yaml"))
GOLDEN = Path(__file__).parent / "spaces"


@pytest.fixture(params=SHIPPED, ids=[path.stem for path in SHIPPED])
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_all_asked_for_are_shipped() -> None:
    names = {path.stem for path in SHIPPED}
    assert names >= {"sm120", "sm90", "sm100", "cpu", "quickstart", "sm120-simulated"}


def test_a_shipped_space_has_no_errors_and_is_called_as_its_file(path: Path) -> None:
    loaded = load_space(path, catalogues=catalogues())
    assert loaded.space.name == path.stem
    assert loaded.space.description


def test_every_engine_of_it_has_a_baseline_that_is_one_of_its_candidates(path: Path) -> None:
    space = load_space(path, catalogues=catalogues()).space
    for engine, part in space.engines.items():
        values = baseline_of(space, engine, load_catalogue(engine, part.version)).values
        candidate = Candidate.of(space, engine, values)
        assert not list(space.broken_rules(engine, candidate.values))
        for name, value in candidate.values.items():
            assert space.knobs_of(engine)[name].allows(value)
        assert space_size(space, engine).exact
        assert space_size(space, engine).combinations > 1


def test_priors_name_values_that_exist_and_give_a_reason(path: Path) -> None:
    space = load_space(path, catalogues=catalogues()).space
    for engine in space.engines:
        for name, knob in space.knobs_of(engine).items():
            for value in knob.prior.likely if knob.prior is not None else ():
                assert knob.allows(value), f"{name}: {value}"


def test_every_rule_gives_its_reason(path: Path) -> None:
    space = load_space(path, catalogues=catalogues()).space
    for engine in space.engines:
        assert all(rule.because for rule in space.rules_of(engine))


def test_the_schema_accepts_it(path: Path) -> None:
    schema = space_schema()
    Draft202012Validator.check_schema(schema)
    assert [error.message for error in Draft202012Validator(schema).iter_errors(yamlfile.load(path).data)] == []


def test_the_schema_refuses_what_the_program_refuses() -> None:
    validator = Draft202012Validator(space_schema())
    sound = {"name": "t", "model": "m", "engines": {"sglang": {}}}
    assert validator.is_valid(sound)
    for mistake in ({"modle": "x"}, {"knobs": {"a": {"valeus": [1]}}}, {"budget": {"trials": 0}}, {"model": None}):
        assert not validator.is_valid(sound | mistake)


def test_warnings_of_the_sm120_space_are_the_known_two() -> None:
    warnings = [warning.message for warning in load_space("sm120", catalogues=catalogues()).warnings]
    assert len(warnings) == 2
    assert "LL128 over PCIe" in warnings[0]
    assert "--num-continuous-decode-steps has no effect" in warnings[1]


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_mistakes_are_reported_word_for_word(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    engines = {engine: partial(load_catalogue, engine) for engine in ("sglang", "vllm")}
    with pytest.raises(SpecError) as caught:
        load_space(f"{name}.yaml", catalogues=engines)
    assert [str(problem) for problem in caught.value.problems] == Path(f"{name}.txt").read_text().splitlines()
