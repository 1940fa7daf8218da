"""Flags, values and variables against the engine's catalogue."""

from __future__ import annotations

import pytest
from support.space_files import Errors, Load, knob


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            knob("values: [x], flag: --bakend"),
            "4:26 knobs.a.flag: --bakend is unknown in engine 1.0 (did you mean --backend?)",
        ),
        (knob("values: [1], flag: --old"), "knobs.a.flag: --old was removed in engine 1.0 (use --max-running)"),
        (
            knob("values: [triton, fa4], flag: --backend, default: triton"),
            "4:24 knobs.a.values[1]: --backend does not take fa4",
        ),
        (knob("values: [1, x], flag: --max-running, default: 1"), "--max-running takes an integer, not x"),
        (knob("int: {low: 1, high: 3}, flag: --backend, default: 1"), "knobs.a.int.low: --backend does not take 1"),
        (knob("switch: on, flag: --max-running"), "--max-running takes an integer, not on"),
        (knob("values: [1], flag: --mixed"), "--mixed is a switch: it is on or off, not 1"),
        (
            knob("values: ['1 2'], flag: --sizes, default: '1 2'"),
            "takes several words; this would be one (add `split: true`)",
        ),
        (knob("values: ['1 b'], split: on, flag: --sizes, default: '1 b'"), "--sizes takes an integer, not b"),
        (knob("values: [1], flag: --max-running, key: x"), "takes no JSON value, so it has no key x"),
        (
            knob("switch: on, flag: --no-caching, default: off"),
            "knobs.a.flag: --no-caching only turns --caching off (write `flag: --caching`, and `inverted: true` where",
        ),
        (knob("values: [1], flag: --port"), "tuner sets --port itself"),
        (
            knob("values: [1], env: NCCL_NVLS_ENABLE"),
            "NCCL_NVLS_ENABLE=1 is not allowed: lets NCCL use NVLink multicast",
        ),
        (knob("values: [0], env: NCCL_NVLS_ENABLE"), "NCCL_NVLS_ENABLE is kept at 0 in every launch"),
        (knob("values: [unset, Tree], env: NCCL_ALGO"), "NCCL_ALGO=Tree: leaves no algorithm for broadcast"),
        ("engines: {engine: {flags: {--bakend: x}}}\n", "3:28 engines.engine.flags.--bakend: --bakend is unknown"),
        (
            "engines: {engine: {flags: {--backend: x}}}\n",
            "3:39 engines.engine.flags.--backend: --backend does not take x",
        ),
        ("engines: {engine: {flags: {--tp: 2, --tensor-parallel-size: 4}}}\n", "--tensor-parallel-size is given twice"),
        ("engines: {engine: {flags: {--tp: [1, 2]}}}\n", "takes one value, not a list"),
        ("engines: {engine: {flags: {--api-key: abc}}}\n", "would be stored with the study in clear"),
        ("engines: {engine: {env: {HF_TOKEN: abc}}}\n", "would be stored with the study in clear"),
        (
            "engines: {engine: {env: {PROXY: 'http://u:hidden@h:1'}}}\n",
            "a secret (PROXY) would be stored with the study in clear",
        ),
        (
            knob("values: [unset, abc], env: HF_TOKEN"),
            "knobs.a.values[1]: a secret (a) would be stored with the study in clear",
        ),
        (
            knob("values: [unset, 'http://u:pw@h'], env: X"),
            "knobs.a.values[1]: a secret (a) would be stored with the study",
        ),
        (
            "knobs:\n  auth_token: {values: [unset, b], env: X}\n",
            "a secret (auth_token) would be stored with the study in clear",
        ),
        ("engines: {engine: {env: {NCCL_NVLS_ENABLE: 1}}}\n", "is not allowed"),
        ("engines: {enginne: {}}\n", "3:11 engines.enginne: there is no engine enginne (did you mean engine?)"),
    ],
)
def test_what_the_engine_does_not_take(errors: Errors, text: str, problem: str) -> None:
    found = errors(text)
    assert any(problem in one for one in found), found


@pytest.mark.parametrize(
    "text",
    [
        knob("values: [unset, triton], flag: --backend"),
        knob("values: [unset, '1 2 4'], split: on, flag: --sizes"),
        knob("switch: on, flag: --disable-own, inverted: on"),
        knob("switch: on, flag: --caching, default: on"),
        knob("switch: on, flag: --caching, inverted: on, default: off"),
        "engines: {engine: {flags: {--no-caching: on}}}\n",
        knob("values: [unset, FULL], flag: --config-json, key: graphs.mode"),
        knob("values: [unset, FULL], flag: -cj.graphs"),
        knob("float: {low: 0.5, high: 0.9, unset: on}, flag: --memory"),
        knob("values: [unset, Ring], env: NCCL_ALGO"),
        "engines: {engine: {flags: {--sizes: [1, 2], --mixed: on, --caching: off, -cj.mode: 3}}}\n",
    ],
)
def test_what_it_takes(load: Load, text: str) -> None:
    assert load(text).warnings == ()


def test_a_flag_that_nothing_reads_is_a_warning(load: Load) -> None:
    (warning,) = load(knob("values: [1, 4], flag: --steps")).warnings
    assert str(warning).startswith("s.yaml:4:29 knobs.a.flag: --steps has no effect in engine 1.0: nothing reads it")


def test_two_knobs_for_one_place(errors: Errors) -> None:
    found = errors(
        "knobs:\n  a: {values: [unset, 1], flag: --tp}\n  b: {values: [unset, 2], flag: --tensor-parallel-size}\n"
    )
    (problem,) = found
    assert problem.startswith("s.yaml:5:33 knobs.b.flag: sets the same place as knob a, and both can be active at once")


def test_two_knobs_for_one_place_that_never_meet_are_fine(load: Load) -> None:
    load(
        "knobs:\n"
        "  mode: {switch: on, flag: --mixed}\n"
        "  a: {values: [unset, 1], flag: --max-running, when: mode == on}\n"
        "  b: {values: [unset, 2], flag: --max-running, when: mode == off}\n"
    )


def test_keys_of_one_json_flag_are_different_places(load: Load, errors: Errors) -> None:
    a, b = (
        "  a: {values: [unset, 1], flag: --config-json, key: x.y}\n",
        "  b: {values: [unset, 1], flag: -cj, key: x.z}\n",
    )
    load(f"knobs:\n{a}{b}")
    assert "same place" in errors(f"knobs:\n{a}{b.replace('x.z', 'x')}")[0]
    assert "same place" in errors(f"knobs:\n{a}  b: {{values: [unset, '{{}}'], flag: --config-json}}\n")[0]


def test_a_knob_for_what_is_fixed(errors: Errors, load: Load) -> None:
    knobs = "knobs:\n  a: {values: [unset, 1], flag: --tp}\n  e: {values: [unset, 1], env: E}\n"
    found = errors(knobs + "engines: {engine: {flags: {--tensor-parallel-size: 8}, env: {E: 1}}}\n")
    assert ["--tensor-parallel-size is also fixed" in found[0], "E is also fixed" in found[1]] == [True, True]
    inner = "knobs:\n  a: {values: [unset, 1], flag: --config-json, key: x}\n"
    load(inner + "engines: {engine: {flags: {--config-json: '{\"y\": 1}'}}}\n")
    assert "also fixed" in errors(inner + "engines: {engine: {flags: {-cj: '{\"x\": 1}'}}}\n")[0]


def test_a_shared_knob_is_checked_only_where_it_can_act(load: Load, errors: Errors) -> None:
    knobs = "knobs:\n  a: {values: [unset, 1], flag: --max-running, when: engine == other}\n"
    text = "engines: {engine: {}, other: {}}\n" + knobs
    load(text)
    assert "--nothing" in errors(text.replace("--max-running", "--nothing"))[0]


def test_a_version_without_a_catalogue_is_a_warning(load: Load) -> None:
    assert load("engines: {engine: {version: '1.0+cpu'}}\n").warnings == ()
    (warning,) = load("engines: {engine: {version: '1.3'}}\n").warnings
    assert "no flag catalogue for engine 1.3; flags are checked against 1.0" in str(warning)
