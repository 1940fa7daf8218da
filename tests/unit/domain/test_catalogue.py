"""Flag catalogues: every spelling of a flag, and the values it takes."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.domain.catalogue import FlagCatalogue, closest

DATA: dict[str, Any] = {
    "engine": "e",
    "version": "1.2",
    "source": "made here",
    "flags": [
        {
            "name": "--tensor-parallel-size",
            "aliases": ["--tp-size", "-tp"],
            "kind": "value",
            "type": "int",
            "default": 1,
        },
        {"name": "--mem-fraction-static", "kind": "value", "type": "float", "default": None},
        {"name": "--attention-backend", "kind": "value", "type": "str", "choices": ["triton", "fa3"], "default": None},
        {"name": "--trust-remote-code", "kind": "switch", "type": None, "default": False},
        {"name": "--enable-prefix-caching", "kind": "toggle", "default": None, "off": ["--disable-prefix-caching"]},
        {"name": "--sizes", "kind": "list", "type": "int"},
        {"name": "--compilation-config", "aliases": ["-cc"], "kind": "json", "type": "json"},
        {"name": "--note", "kind": "value", "type": "str", "default": {"a": 1}},
    ],
    "removed": {"--old-size": "use --sizes"},
    "dead": {"--note": "nothing reads it"},
}
CATALOGUE = FlagCatalogue.from_json(DATA)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("--tensor-parallel-size", "--tensor-parallel-size"),
        ("--tp-size", "--tensor-parallel-size"),
        ("-tp", "--tensor-parallel-size"),
        ("--tensor_parallel_size", "--tensor-parallel-size"),
        ("--mem-frac", "--mem-fraction-static"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching"),
        ("--disable-prefix-caching", "--enable-prefix-caching"),
        ("-cc", "--compilation-config"),
    ],
)
def test_a_flag_is_found_by_any_spelling(spelling: str, name: str) -> None:
    spec = CATALOGUE.find(spelling)
    assert spec is not None
    assert spec.name == CATALOGUE.canonical(spelling) == name


@pytest.mark.parametrize("unknown", ["--t", "--nothing", "--no-trust-remote-code", "-x", "--old-size", "tp-size"])
def test_ambiguous_and_unknown_spellings_are_no_flags(unknown: str) -> None:
    assert CATALOGUE.find(unknown) is None
    assert CATALOGUE.canonical(unknown) == unknown


def test_spellings_that_turn_a_toggle_off() -> None:
    assert CATALOGUE.negates("--no-enable-prefix-caching")
    assert CATALOGUE.negates("--disable-prefix-caching")
    assert not CATALOGUE.negates("--enable-prefix-caching")
    assert not CATALOGUE.negates("--trust-remote-code")
    assert not CATALOGUE.negates("--nothing")


def test_advice_is_the_replacement_or_the_nearest_name() -> None:
    assert CATALOGUE.advice("--old-size") == "use --sizes"
    assert CATALOGUE.advice("--atention-backend") == "did you mean --attention-backend?"
    assert CATALOGUE.advice("--zzzzzz") is None


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--tp-size", 8),
        ("--tp-size", "8k"),
        ("--mem-fraction-static", 0.9),
        ("--mem-fraction-static", 1),
        ("--attention-backend", "fa3"),
        ("--trust-remote-code", True),
        ("--enable-prefix-caching", False),
        ("--sizes", "1 2 4"),
        ("--compilation-config", '{"mode": 3}'),
        ("--compilation-config", "3"),
        ("--note", "anything"),
    ],
)
def test_values_that_the_engine_takes(flag: str, value: Any) -> None:
    spec = CATALOGUE.find(flag)
    assert spec is not None
    assert spec.refuses(value) is None


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--tp-size", "x", "takes an integer"),
        ("--tp-size", 2.5, "takes an integer"),
        ("--tp-size", True, "takes an integer, not on"),
        ("--mem-fraction-static", "high", "takes a number"),
        ("--attention-backend", "tritn", "did you mean triton?"),
        ("--attention-backend", "flash", "triton, fa3"),
        ("--trust-remote-code", 1, "is a switch"),
        ("--sizes", "1 2 x", "takes an integer, not x"),
        ("--compilation-config", '{"mode": ', "takes JSON"),
    ],
)
def test_values_that_the_engine_refuses(flag: str, value: Any, words: str) -> None:
    spec = CATALOGUE.find(flag)
    assert spec is not None
    reason = spec.refuses(value)
    assert reason is not None
    assert words in reason


def test_only_plain_defaults_are_kept() -> None:
    assert CATALOGUE.flags["--tensor-parallel-size"].default == 1
    assert CATALOGUE.flags["--note"].default is None


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "--x", "kind": "sometimes"},
        {"name": "--x", "kind": "value", "type": "complex"},
        {"name": "--x", "aliases": ["-tp"]},
    ],
)
def test_a_catalogue_with_a_mistake_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="-"):
        FlagCatalogue.from_json({**DATA, "flags": [*DATA["flags"], entry]})


def test_the_closest_word_ignores_case() -> None:
    assert closest("Triton", ("triton", "fa3")) == "triton"
    assert closest("zzz", ("triton", "fa3")) is None
