"""The flag dump: what it says about a parser that has one flag of each kind that the engines have."""

import argparse
import enum
import json
import tomllib
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
from pydantic import field_validator
from pydantic.dataclasses import dataclass

from tuner.domain.catalogue import FlagCatalogue
from tuner.engines.catalogue import catalogue_versions, load_catalogue

FLAGS = Path(__file__).parents[3] / "launchers"


class Level(enum.Enum):
    HIGH = "high"


def optional(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """A converter wrapped in a closure, as vLLM wraps its own."""

    def wrapped(word: str) -> Any:
        return None if word == "None" else convert(word)

    return wrapped


def with_suffix(word: str) -> int:
    return int(word.removesuffix("k")) * (1000 if word.endswith("k") else 1)


def number_or_auto(word: str) -> int:
    return -1 if word == "auto" else int(word)


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add = made.add_argument
    add("model", nargs="?")
    add("--tp", "--tp-size", "--tensor-parallel-size", "-t", type=int, default=1)
    add("--gpu-memory-utilization", "--device-memory-utilization", type=float, default=0.9)
    add("--backend", choices=["b", "a"], default="a")
    add("--parsers", choices={"y", "x"})
    add("--disable-graph", action="store_true")
    add("--prefix-caching", action=argparse.BooleanOptionalAction, default=None)
    add("--sizes", nargs="+", type=int)
    add("--config", type=optional(json.loads), default={})
    add("--max-tokens", type=with_suffix)
    add("--max-len", type=number_or_auto)
    add("--ratio", type=optional(float))
    add("--level", default=Level.HIGH)
    add("--gone", default=argparse.SUPPRESS)
    add("--num-continuous-decode-steps", type=int, default=1)
    return made


@pytest.fixture
def flags(dump_flags: ModuleType, parser: argparse.ArgumentParser) -> dict[str, dict[str, Any]]:
    content = dump_flags.catalogue("sglang", parser, "9.9.9", "a test", {})
    return {flag["name"]: flag for flag in content["flags"]}


def test_the_longest_spelling_is_the_name(flags: dict[str, dict[str, Any]]) -> None:
    assert flags["--tensor-parallel-size"]["aliases"] == ["--tp-size", "--tp", "-t"]


def test_a_name_that_every_version_takes_goes_before_a_longer_new_one(flags: dict[str, dict[str, Any]]) -> None:
    assert flags["--gpu-memory-utilization"]["aliases"] == ["--device-memory-utilization"]


@pytest.mark.parametrize(
    ("name", "kind", "type_"),
    [
        ("--tensor-parallel-size", "value", "int"),
        ("--gpu-memory-utilization", "value", "float"),
        ("--backend", "value", "str"),
        ("--disable-graph", "switch", None),
        ("--prefix-caching", "toggle", None),
        ("--sizes", "list", "int"),
        ("--config", "json", "json"),
        ("--max-tokens", "value", "int"),
        ("--max-len", "value", None),
        ("--ratio", "value", "float"),
    ],
)
def test_kind_and_type_are_found_by_trying(
    flags: dict[str, dict[str, Any]], name: str, kind: str, type_: str | None
) -> None:
    assert (flags[name]["kind"], flags[name]["type"]) == (kind, type_)


def test_choices_keep_the_parsers_order_and_sets_are_sorted(flags: dict[str, dict[str, Any]]) -> None:
    assert flags["--backend"]["choices"] == ["b", "a"]
    assert flags["--parsers"]["choices"] == ["x", "y"]


def test_defaults_are_plain_or_null(flags: dict[str, dict[str, Any]]) -> None:
    assert flags["--level"]["default"] == "high"
    assert flags["--gone"]["default"] is None
    assert flags["--config"]["default"] is None


def test_positional_arguments_and_help_are_no_flags(flags: dict[str, dict[str, Any]]) -> None:
    assert not {"model", "--help", "-h"} & set(flags)


def test_spellings_that_turn_a_flag_off_are_kept_apart(dump_flags: ModuleType) -> None:
    class Pair(argparse.BooleanOptionalAction):
        """Like vLLM's: `--disable-x` beside `--no-enable-x`."""

        def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
            super().__init__(option_strings, dest, **options)
            self.negative_option_strings = {"--no-enable-x", "--disable-x"}
            self.option_strings = [*self.option_strings, "--disable-x"]

    described = dump_flags.describe(Pair(["--enable-x"], "x"))
    assert (described["name"], described["aliases"], described["off"]) == ("--enable-x", [], ["--disable-x"])


def test_the_history_names_only_flags_that_are_gone_or_still_taken(
    dump_flags: ModuleType, parser: argparse.ArgumentParser
) -> None:
    content = dump_flags.catalogue("sglang", parser, "9.9.9", "a test", {})
    assert list(content["dead"]) == ["--num-continuous-decode-steps"]
    parser.add_argument("--stream-output")
    removed = dump_flags.catalogue("sglang", parser, "9.9.9", "a test", {})["removed"]
    assert "--cuda-graph-max-bs" in removed
    assert "--stream-output" not in removed


def test_the_text_is_json_with_one_flag_a_line(dump_flags: ModuleType, parser: argparse.ArgumentParser) -> None:
    content = dump_flags.catalogue("sglang", parser, "9.9.9", "a test", {})
    text = dump_flags.to_text(content)
    assert json.loads(text) == content
    assert sum(line.startswith('    {"name"') for line in text.splitlines()) == len(content["flags"])
    assert len(FlagCatalogue.from_json(json.loads(text)).flags) == len(content["flags"])


class Graphs(enum.Enum):
    NONE = 0
    FULL = 1
    BOTH = (1, 0)


@dataclass(kw_only=True)
class Passes:
    fuse: bool = False


@dataclass(kw_only=True)
class Apart:
    unseen: int = 0


@dataclass(kw_only=True)
class Config:
    """A class of one field of each kind that vLLM's have."""

    graphs: Graphs | None = None
    backend: Literal["fast", "slow_one"] = "fast"
    form: Literal["a", "B"] = "a"
    sizes: list[int] = field(default_factory=list)
    most: int | None = None
    passes: Passes = field(default_factory=Passes)
    apart: Apart | None = None
    own: int = field(init=False, default=0)

    @field_validator("graphs", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return Graphs[value.upper()] if isinstance(value, str) else value

    @field_validator("backend", mode="before")
    @classmethod
    def _in_any_case(cls, value: Any) -> Any:
        return value.lower().replace("-", "_")

    @field_validator("most")
    @classmethod
    def _checked(cls, value: int | None) -> int | None:
        return value


def test_keys_of_a_json_value_are_those_of_the_class_that_is_made_of_it(dump_flags: ModuleType) -> None:
    assert dump_flags.keys_of(Config, apart=(Apart,)) == {
        "graphs": {"choices": ["NONE", "FULL", "BOTH", "0", "1", "auto"], "any_case": True},
        "backend": {"choices": ["fast", "slow_one"], "any_case": True},
        "form": {"choices": ["a", "B"]},
        "sizes": {},
        "most": {"type": "int"},
        "passes.fuse": {"type": "bool"},
        "apart": {},
    }


def test_a_json_flag_tells_its_keys(dump_flags: ModuleType, parser: argparse.ArgumentParser) -> None:
    keys = {"config": {"a": {"type": "int"}}, "backend": {"b": {}}}
    told = {
        flag["name"]: flag.get("keys") for flag in dump_flags.catalogue("vllm", parser, "9", "a test", keys)["flags"]
    }
    assert told["--config"] == {"a": {"type": "int"}}
    assert told["--backend"] is None, "it takes a word, not JSON"


@pytest.mark.parametrize(
    ("engine", "versions"), [("sglang", ("0.5.16", "0.5.23")), ("vllm", ("0.26.0", "0.32.0", "0.33.0"))]
)
def test_the_shipped_catalogues_are_dumps_that_tuner_reads(engine: str, versions: tuple[str, ...]) -> None:
    assert catalogue_versions(engine) == versions
    for version in versions:
        catalogue = load_catalogue(engine, version)
        assert (catalogue.engine, catalogue.version) == (engine, version)
        assert len(catalogue.flags) > 250
        assert catalogue.source.startswith(f"argument parser of {engine} {version}")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_the_advice_about_removed_flags_names_flags_that_exist(engine: str) -> None:
    newest = load_catalogue(engine)
    history = tomllib.loads((FLAGS.parent / "tools" / "flag_history.toml").read_text(encoding="utf-8"))[engine]
    for flag, advice in history["removed"].items():
        assert newest.find(flag) is None, flag
        for word in advice.replace(",", " ").replace("(", " ").replace(")", " ").split():
            if word.startswith("--"):
                assert word in newest.spellings, f"{flag}: {word}"
    for flag in history["dead"]:
        assert flag in newest.spellings
