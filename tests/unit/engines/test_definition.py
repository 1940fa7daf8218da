"""Engine definitions are data: every shipped one loads, and a wrong one says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.engines.catalogue import catalogue_versions, load_catalogue
from tuner.engines.definition import engine_names, load_definition, load_definitions
from tuner.errors import SpecError, UserError


def test_the_shipped_engines_are_sglang_vllm_and_the_simulated_one() -> None:
    assert engine_names() == ("sglang", "simulated", "vllm")
    assert [d.name for d in load_definitions() if d.simulated] == ["simulated"]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_multicast_is_off_in_every_launch_of_a_real_engine(engine: str) -> None:
    env = load_definition(engine).env
    assert env["NCCL_NVLS_ENABLE"] == "0"
    assert env["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == "1"
    assert env["NVSHMEM_DISABLE_NVLS"] == "1"


def test_an_unknown_engine_names_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        load_definition("tensorrt")
    assert "vllm" in str(caught.value.hint)


def test_a_wrong_definition_is_reported_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "engine.yaml").write_text("name: toy\ntitle: Toy\ncommand: [toy]\nport_fla: --port\n", encoding="utf-8")
    monkeypatch.setenv("TUNER_LAUNCHERS", str(tmp_path))
    with pytest.raises(SpecError) as caught:
        load_definition("toy")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (4, 1)


@pytest.mark.parametrize("engine", ["sglang", "vllm", "simulated"])
def test_every_engine_has_flag_catalogues(engine: str) -> None:
    versions = catalogue_versions(engine)
    assert versions
    assert [load_catalogue(engine, version).version for version in versions] == list(versions)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"flags": [}', "1.json:1:12 Expecting value"),
        ('{"flags": []}', "1.json: is no flag catalogue: no 'engine'"),
        ('{"engine": "toy", "version": "1", "flags": [{"name": "--a", "kind": "odd"}]}', "--a: unknown kind 'odd'"),
        ('["--a"]', "is no flag catalogue: something stands where an object is wanted"),
    ],
)
def test_a_wrong_catalogue_is_reported_with_its_file(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy" / "flags").mkdir(parents=True)
    (tmp_path / "toy" / "flags" / "1.json").write_text(text)
    monkeypatch.setenv("TUNER_LAUNCHERS", str(tmp_path))
    with pytest.raises(SpecError) as caught:
        load_catalogue("toy")
    assert said in str(caught.value)
    assert "dump_flags" in str(caught.value)


def test_a_version_without_catalogue_gets_the_newest_older_one() -> None:
    assert load_catalogue("vllm", "0.32.0+cpu").version == "0.32.0"
    assert load_catalogue("vllm", "0.32.5").version == "0.32.0"
    assert load_catalogue("vllm", "0.1.0").version == catalogue_versions("vllm")[0]
    assert load_catalogue("vllm").version == catalogue_versions("vllm")[-1]
