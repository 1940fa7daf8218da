"""The user's present server as knob values and fixed settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.space_files import Errors, Load

from tuner.domain.candidate import Candidate
from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.space import Space
from tuner.errors import SpecError
from tuner.spec import BaselineSettings, baseline_of, load_space

KNOBS: dict[str, Any] = {
    "own": {"switch": True, "flag": "--disable-own", "inverted": True},
    "backend": {"values": ["triton", "fa3"], "flag": "--backend", "default": "triton"},
    "tp": {"values": [1, 2, 4], "flag": "--tp"},
    "memory": {"float": {"low": 0.5, "high": 0.95, "step": 0.05}, "flag": "--memory"},
    "caching": {"switch": True, "flag": "--caching", "default": True},
    "sizes": {"values": [None, "1 2 4"], "flag": "--sizes", "split": True},
    "mode": {"values": [None, "FULL", "NONE"], "flag": "--config-json", "key": "graphs.mode"},
    "proto": {"values": [None, "LL", "LL,LL128,Simple"], "env": "NCCL_PROTO"},
    "p2p_off": {"switch": True, "env": "NCCL_P2P_DISABLE", "default": False},
}


def space(baseline: dict[str, Any] | None = None, knobs: dict[str, Any] = KNOBS, **engine: Any) -> Space:
    part = engine | ({"baseline": baseline} if baseline is not None else {})
    return Space.model_validate({"name": "t", "model": "m", "engines": {"engine": part}, "knobs": knobs})


@pytest.fixture
def derive(catalogue: FlagCatalogue) -> Callable[[Space], BaselineSettings]:
    return lambda of: baseline_of(of, "engine", catalogue)


Derive = Callable[[Space], BaselineSettings]


class TestWithoutACommand:
    def test_what_is_left_out_is_what_the_engine_does(self, derive: Derive) -> None:
        assert derive(space()).values == {
            "own": True,
            "backend": "triton",
            "tp": 1,
            "memory": 0.9,
            "caching": True,
            "sizes": None,
            "mode": None,
            "proto": None,
            "p2p_off": False,
        }

    @pytest.mark.parametrize(
        ("takes", "written", "own"),
        [
            ({"float": {"low": 0, "high": 1, "step": 0.5}}, 1, 1.0),
            ({"values": [0.5, 1]}, 1.0, 1),
            ({"values": [0.5, 1.0]}, 1, 1.0),
        ],
    )
    def test_a_number_is_the_knobs_own_so_that_1_and_1_0_are_one_configuration(
        self, derive: Derive, takes: dict[str, Any], written: float, own: float
    ) -> None:
        knobs = {"memory": {**takes, "flag": "--memory"}}
        of_set = space({"set": {"memory": written}}, knobs)
        of_command = space(command(f"{RUN} --memory {written}"), knobs)
        of_default = space(None, {"memory": {**knobs["memory"], "default": written}})
        for one in (of_set, of_command, of_default):
            value = derive(one).values["memory"]
            assert (type(value), value) == (type(own), own)
            assert Candidate.of(one, "engine", {"memory": value}) == Candidate.of(one, "engine", {"memory": own})

    def test_given_values_win(self, derive: Derive) -> None:
        values = derive(space({"set": {"own": False, "proto": "LL", "memory": 0.55}})).values
        assert (values["own"], values["proto"], values["memory"], values["tp"]) == (False, "LL", 0.55, 1)

    def test_a_value_that_nothing_tells_must_be_said(self, derive: Derive) -> None:
        for knob in (
            {"values": [1, 2], "env": "X"},
            {"switch": True, "env": "X"},
            {"values": [8, 16], "flag": "--max-running"},
            {"switch": True, "flag": "--caching"},
        ):
            with pytest.raises(SpecError, match="say what the baseline of engine is"):
                derive(space(knobs={"a": knob}))

    def test_values_that_the_knob_does_not_allow(self, errors: Errors) -> None:
        knobs = "knobs:\n  tp: {values: [1, 2], flag: --tp}\n"
        found = errors(knobs + "engines: {engine: {baseline: {set: {tp: 3}}}}\n")
        assert found == ["s.yaml:5:41 engines.engine.baseline.set.tp: tp cannot be 3 (its values: 1, 2)"]
        found = errors(knobs + "engines: {engine: {baseline: {set: {ttp: 1}}}}\n")
        assert found == ["s.yaml:5:37 engines.engine.baseline.set.ttp: engine has no knob ttp"]

    def test_fixed_settings_are_the_spaces_own(self, derive: Derive) -> None:
        settings = derive(space(flags={"--mixed": True}, env={"A": 1}))
        assert (settings.flags, settings.env) == ({"--mixed": True}, {"A": 1})


def command(text: str) -> dict[str, Any]:
    return {"command": text}


@pytest.fixture(autouse=True)
def _engine_is_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The little engine is started like vLLM, so that commands can be written."""
    from tuner.spec.command import launchers

    monkeypatch.setitem(launchers._MODULES, "engine.serve", "engine")


RUN = "python -m engine.serve --model m --host 0.0.0.0 --port 9 "


class TestWithACommand:
    def test_knobs_take_their_values_and_the_rest_is_fixed(self, derive: Derive) -> None:
        settings = derive(
            space(
                command(
                    "NCCL_PROTO=LL,LL128,Simple NCCL_P2P_DISABLE=1 OMP_NUM_THREADS=8 "
                    + RUN
                    + "--disable-own --backend fa3 --tp 4 --memory 0.90 --no-caching --sizes 1 2 4 --max-running 16 "
                    """--mixed --config-json '{"graphs": {"mode": "FULL", "x": 1}, "y": [2]}'"""
                )
            )
        )
        assert settings.values == {
            "own": False,
            "backend": "fa3",
            "tp": 4,
            "memory": 0.9,
            "caching": False,
            "sizes": "1 2 4",
            "mode": "FULL",
            "proto": "LL,LL128,Simple",
            "p2p_off": True,
        }
        assert settings.flags == {
            "--max-running": "16",
            "--mixed": True,
            "--config-json": '{"graphs": {"x": 1}, "y": [2]}',
        }
        assert settings.env == {"OMP_NUM_THREADS": "8"}

    def test_what_the_command_leaves_out_is_what_the_engine_does(self, derive: Derive) -> None:
        assert derive(space(command(RUN))) == BaselineSettings(derive(space()).values)

    def test_the_address_and_the_model_are_not_kept(self, derive: Derive) -> None:
        assert derive(space(command(RUN + "--served-model-name a b"))).flags == {}

    def test_a_dotted_json_flag_is_its_key(self, derive: Derive) -> None:
        settings = derive(space(command(RUN + "-cj.graphs.mode=NONE -cj.other=1")))
        assert settings.values["mode"] == "NONE"
        assert settings.flags == {"-cj.other": "1"}

    def test_a_json_flag_used_up_by_knobs_is_gone(self, derive: Derive) -> None:
        settings = derive(space(command(RUN + """--config-json '{"graphs":{"mode":"FULL"}}'""")))
        assert (settings.values["mode"], settings.flags) == ("FULL", {})

    def test_an_empty_variable_means_unset(self, derive: Derive) -> None:
        assert derive(space(command("NCCL_PROTO= " + RUN))).values["proto"] is None

    def test_the_spaces_fixed_settings_win(self, derive: Derive) -> None:
        settings = derive(space(command("A=1 " + RUN + "--max-running 16"), flags={"--max-running": 8}, env={"A": "2"}))
        assert (settings.flags, settings.env) == ({"--max-running": 8}, {"A": "2"})

    def test_secrets_in_the_environment_stay_there(self, derive: Derive) -> None:
        settings = derive(space(command("HF_TOKEN=$HF_TOKEN " + RUN)))
        assert settings.env == {}

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("python -m engine.serve --model m --tp 3", "sets tp (--tp) to 3, which the knob does not allow"),
            ("NCCL_PROTO=Simple " + RUN, "sets proto (NCCL_PROTO) to Simple, which the knob does not allow"),
            (RUN + "--bakend fa3", "--bakend is unknown in engine 1.0"),
            (RUN + "--nnodes 2", "--nnodes 2: it spans several nodes, and tuner launches on one host"),
            (RUN + "--old 3", "--old was removed in engine 1.0 (use --max-running)"),
            (RUN + "--config-json 3", "--config-json is no JSON object here, but knob mode is a key of it"),
            (RUN + "--api-key abc", "a secret (--api-key) would be stored with the study in clear"),
            ("HF_TOKEN=abc " + RUN, "a secret (HF_TOKEN) would be stored with the study in clear"),
            ("NCCL_NVLS_ENABLE=1 " + RUN, "NCCL_NVLS_ENABLE=1 is not allowed"),
            ("NCCL_ALGO=NVLS " + RUN, "NCCL_ALGO=NVLS is not allowed"),
            (RUN + "--max-running $N", "these variables have no value here: N"),
            ("A=$N " + RUN, "A depends on N, which has no value"),
            ("vllm serve m", "starts vllm, not engine"),
            ("make tea", "no command here starts a server"),
            ("", "the command is empty"),
        ],
    )
    def test_what_cannot_be_taken_over_is_said(self, derive: Derive, text: str, problem: str) -> None:
        with pytest.raises(SpecError) as caught:
            derive(space(command(text)))
        assert problem in str(caught.value)

    def test_problems_stand_at_the_command(self, errors: Errors) -> None:
        found = errors("engines:\n  engine:\n    baseline:\n      command: |\n        make tea\n")
        assert found == [
            "s.yaml:6:16 engines.engine.baseline.command: no command here starts a server of SGLang or vLLM"
        ]

    def test_another_model_is_a_warning(self, load: Load) -> None:
        loaded = load("engines: {engine: {baseline: {command: python -m engine.serve --model other}}}\n")
        assert "serves other; the space's model m is used" in str(loaded.warnings[0])

    def test_a_setting_that_is_inactive_in_the_space_is_a_warning(self, load: Load) -> None:
        loaded = load(
            "knobs:\n"
            "  own: {switch: on, flag: --disable-own, inverted: on}\n"
            "  proto: {values: [unset, LL], env: NCCL_PROTO, when: own == off}\n"
            f"engines: {{engine: {{baseline: {{command: NCCL_PROTO=LL {RUN}}}}}}}\n"
        )
        assert "sets proto, which is inactive here by its `when`" in str(loaded.warnings[0])

    def test_what_the_command_leaves_to_the_engine_is_not_said_to_be_set_by_it(self, load: Load) -> None:
        loaded = load(
            "knobs:\n"
            "  mixed: {switch: on, flag: --mixed}\n"
            "  memory: {values: [0.8, 0.9], flag: --memory, when: mixed == on}\n"
            f"engines: {{engine: {{baseline: {{command: {RUN}}}}}}}\n"
        )
        assert loaded.warnings == ()

    def test_a_loaded_space_needs_its_config_file_no_more(self, tmp_path: Path, catalogue: FlagCatalogue) -> None:
        (tmp_path / "serve.yaml").write_text("tp: 2\nmax-running: 5\nmixed: true\nsizes: [1, 2]\n")
        (tmp_path / "s.yaml").write_text(
            "name: t\nmodel: a/b\nknobs: {tp: {values: [1, 2], flag: --tp}}\n"
            "engines: {vllm: {baseline: {command: \"A='x y' vllm serve a/b --config serve.yaml --max-running 7\"}}}\n"
        )
        loaded = load_space(tmp_path / "s.yaml", catalogues={"vllm": lambda _: catalogue})
        (tmp_path / "serve.yaml").unlink()
        settings = baseline_of(loaded.space, "vllm", catalogue)
        assert settings.values == {"tp": 2}
        assert settings.flags == {"--max-running": "7", "--mixed": True, "--sizes": ("1", "2")}
        assert settings.env == {"A": "x y"}

    def test_a_config_file_is_followed(self, catalogue: FlagCatalogue, tmp_path: Path) -> None:
        (tmp_path / "serve.yaml").write_text("tp: 2\nmax_running: 5\nmixed: true\n")
        of = space(command(RUN + "--config serve.yaml --max-running 7"))
        settings = baseline_of(of, "engine", catalogue, folder=tmp_path)
        assert settings.values["tp"] == 2
        assert settings.flags == {"--max-running": "7", "--mixed": True}
