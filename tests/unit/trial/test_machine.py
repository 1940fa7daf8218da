"""Facts about the machine that decide whether measurements may be compared."""

from __future__ import annotations

from pathlib import Path

from tuner.domain.machine import differences
from tuner.trial.machine import loaded_nccl, machine_facts, model_config_hash


def test_this_machine_is_itself() -> None:
    assert differences(machine_facts().summary(), machine_facts().summary()) == {}


def test_another_driver_makes_another_machine_and_another_host_name_does_not() -> None:
    old = {"driver": "590.44", "hostname": "a", "gpu_clock_mhz": "1980"}
    new = {"driver": "591.01", "hostname": "b", "gpu_clock_mhz": "1200"}
    assert differences(old, new) == {"driver": ("590.44", "591.01")}


def test_a_fact_that_one_side_does_not_know_is_no_difference() -> None:
    assert differences({"driver": "590.44"}, {"cuda": "13.0"}) == {}


def test_the_nccl_library_is_the_one_that_a_process_has_mapped(tmp_path: Path) -> None:
    library = tmp_path / "nvidia" / "libnccl.so.2"
    library.parent.mkdir()
    library.write_bytes(b"\x7fELF...NCCL version 2.28.9 compiled with CUDA 13.0...")
    maps = "7f00-7f01 r-xp 00000000 00:1f 12   /usr/lib/libc.so.6\n"
    for pid, text in ((1, maps), (2, f"{maps}7f02-7f03 r-xp 00000000 00:1f 13   {library}\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "maps").write_text(text)
    assert loaded_nccl([1, 2, 3], tmp_path) == f"2.28.9 ({library})"
    assert loaded_nccl([1, 3], tmp_path) is None


def test_a_model_folder_is_known_by_its_configuration(tmp_path: Path) -> None:
    assert model_config_hash("org/name") is None
    (tmp_path / "config.json").write_text("{}")
    first = model_config_hash(str(tmp_path))
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert first is not None
    assert model_config_hash(str(tmp_path)) != first
