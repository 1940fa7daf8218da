"""Compose file, systemd unit and manifest: right quoting for any value, provenance, no secrets."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from support import exports

from tuner.export.formats import FORMATS, SUFFIXES
from tuner.trial.environment import fixed_variables

any_text = exports.texts(
    ["$X", "${X:-y}", "%i", "100%", "a: b", "- x", "'\"\\", "a\nb", "\x85", "# no", "{}", "yes", "\\x41"]
)


def test_every_format_has_a_suffix() -> None:
    assert FORMATS.keys() == SUFFIXES.keys()


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_tells_where_its_numbers_come_from(form: str) -> None:
    text = FORMATS[form](exports.export(simulated=True))
    for fact in ("night", "0123456789ab", "0.5.23", "590.44", "90.0", "2027-01-15T08:00:00+00:00"):
        assert fact in text
    assert "simulated" in text.lower()


@pytest.mark.parametrize("form", FORMATS)
def test_no_format_holds_a_masked_secret(form: str) -> None:
    plan = exports.served_plan(("--api-key", "***"), {"HF_TOKEN": "***"})
    text = FORMATS[form](exports.export(plan))
    assert "***" not in text
    assert "API_KEY" in text
    assert "HF_TOKEN" in text


class TestCompose:
    def load(self, export: exports.Export) -> dict:
        return YAML(typ="safe").load(FORMATS["compose"](export))["services"]["server"]

    @settings(max_examples=60)
    @given(arguments=st.lists(any_text, max_size=4).map(tuple), value=any_text)
    def test_arguments_and_environment_read_back_unchanged(self, arguments: tuple[str, ...], value: str) -> None:
        plan = exports.served_plan(arguments, {"SETTING": value})
        service = self.load(exports.export(plan))
        # Compose turns `$$` into `$` after reading the YAML.
        command = [word.replace("$$", "$") for word in service["command"]]
        assert command == ["python3", *plan.argv[1:5], "--host", "0.0.0.0", "--port", "30000", *plan.argv[9:]]
        assert service["environment"]["SETTING"].replace("$$", "$") == value
        assert not any(re.search(r"(?<!\$)(\$\$)*\$(?!\$)", word) for word in service["command"])

    def test_it_is_published_on_loopback_and_reserves_the_gpus(self) -> None:
        service = self.load(exports.export())
        assert service["ports"] == ["${HOST:-127.0.0.1}:${PORT:-30000}:30000"]
        assert service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] == ["0", "1"]
        assert "CUDA_VISIBLE_DEVICES" not in service["environment"]
        assert service["volumes"][0]["source"] == "/models/Kimi-K2.5"

    def test_a_model_of_the_hub_needs_no_folder(self) -> None:
        assert "volumes" not in self.load(exports.export(exports.served_plan(model="moonshotai/Kimi-K2.5")))


_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code.startswith(b"x"):
        return bytes([int(code[1:], 16)])
    return {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(code, code)


class TestSystemd:
    def words(self, line: str) -> list[str]:
        """The words of an ExecStart= or Environment= value, read by the rules of systemd.syntax(7)."""
        return [
            _ESCAPE.sub(_unescaped, quoted.encode()).decode().replace("%%", "%")
            for quoted in re.findall(r'"((?:[^"\\]|\\.)*)"', line)
        ]

    def value(self, text: str, name: str) -> list[str]:
        joined = text.replace(" \\\n", " ")
        return [line.removeprefix(f"{name}=") for line in joined.split("\n") if line.startswith(f"{name}=")]

    @settings(max_examples=60)
    @given(arguments=st.lists(any_text, max_size=4).map(tuple), value=any_text)
    def test_arguments_and_environment_read_back_unchanged(self, arguments: tuple[str, ...], value: str) -> None:
        plan = exports.served_plan(arguments, {"SETTING": value})
        text = FORMATS["systemd"](exports.export(plan))
        (start,) = self.value(text, "ExecStart")
        words = [word.replace("$$", "$") for word in self.words(start)]
        assert words == [*plan.argv[:6], "${HOST}", "--port", "${PORT}", *plan.argv[9:]]
        environment = dict(w.split("=", 1) for line in self.value(text, "Environment") for w in self.words(line))
        assert environment == fixed_variables(plan) | {"HOST": "127.0.0.1", "PORT": "30000"}

    def test_systemd_accepts_the_unit(self, tmp_path: Path) -> None:
        analyze = shutil.which("systemd-analyze")
        if analyze is None:
            pytest.skip("systemd-analyze is not installed")
        plan = exports.served_plan(("--json", '{"a": "b $c 5%"}'), {"A": "x 'y' \"z\" 5% $q"}, ("/bin/true",))
        unit = tmp_path / "night.service"
        unit.write_text(FORMATS["systemd"](exports.export(plan)))
        checked = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
        complaints = [line for line in (checked.stdout + checked.stderr).splitlines() if "night.service" in line]
        assert complaints == []
        unit.write_text(unit.read_text().replace("ExecStart=", "ExecStart=not/absolute ", 1))
        checked = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
        assert "night.service" in checked.stdout + checked.stderr  # so its silence above means something

    def test_secrets_come_from_a_file_that_must_exist(self) -> None:
        text = FORMATS["systemd"](exports.export(exports.served_plan((), {"HF_TOKEN": "***"}), study="a b/c"))
        assert "EnvironmentFile=/etc/tuner/a_b_c.env" in text


def test_the_manifest_is_complete_json() -> None:
    document = json.loads(FORMATS["json"](exports.export(exports.served_plan(("--x", "a$b"), {"HF_TOKEN": "***"}))))
    assert document["settings"] == {"nccl_proto": "LL", "decode_steps": 4, "graphs": None}
    assert document["changes"] == {"nccl_proto": ["unset", "LL"], "graphs": ["on", "unset"]}
    assert document["results"][0]["gain"] == {"ratio": 1.4156, "low": 1.39, "high": 1.44}
    assert document["command"]["argv"][-1] == "a$$b"
    assert document["command"]["variables"]["HF_TOKEN"] is None
    assert document["command"]["env"]["HF_TOKEN"] == "${HF_TOKEN}"
