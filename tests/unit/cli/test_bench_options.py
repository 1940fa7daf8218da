"""`tuner bench` names its own options, never the keys of a space file that its user has not written."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from tuner.cli.bench import bench
from tuner.cli.bench_options import warning_words, workload_of
from tuner.domain.warnings import WarningCode
from tuner.errors import UsageError

OPTIONS = {f"--{name.replace('_', '-')}" for name in inspect.signature(bench).parameters}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"goodput": {"foo": "3"}}, "--goodput foo: unknown key (known here: ttft_ms, tpot_ms, e2e_ms)"),
        ({"goodput": {"ttft": "3"}}, "--goodput ttft: unknown key (did you mean ttft_ms?)"),
        ({"rates": (0.0, 2.0)}, "--rates: must be greater than 0"),
        ({"levels": ()}, "--levels is empty: give one or more"),
        ({"levels": (8, 1)}, "--levels: must ascend without repetition"),
        ({"warmup_requests": 0}, "--warmup: must be greater than 0"),
        ({"arrivals": "even"}, "--arrivals: must be 'poisson' or 'constant'"),
        ({"shape": {"kind": "shared_prefix", "prefix_tokens": 8, "groups": 0}}, "--prefix-groups: must be greater"),
        ({"shape": {"kind": "shared_prefix", "prefix_tokens": 900}}, "--shared-prefix must be below --input-tokens"),
        ({"rates": (0.0,), "repeats": 0}, "--rates: must be greater than 0; --repeats: must be greater than 0"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        workload_of(**fields)
    assert said in caught.value.message
    assert set(re.findall(r"--[a-z-]+", caught.value.message)) <= OPTIONS


@pytest.mark.parametrize("code", [code for code in WarningCode if "workload." in code.advice])
def test_what_a_warning_advises_can_be_given_as_an_option(code: WarningCode) -> None:
    words = warning_words(code)
    named = set(re.findall(r"--[a-z-]+", words))
    assert "workload." not in words
    assert named
    assert named <= OPTIONS
