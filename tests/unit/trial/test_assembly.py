"""Where a space's model is found: a server starts in another folder than the command that starts it."""

from pathlib import Path

import pytest

from tuner.errors import UserError
from tuner.trial.assembly import located_model


def test_a_model_folder_is_found_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "small").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert located_model("models/small") == str(tmp_path / "models" / "small")


def test_a_model_folder_of_the_checkout_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkout = Path(__file__).parents[3]
    assert located_model("./tests/unit") == str(checkout / "tests" / "unit")


def test_a_name_on_the_hub_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert located_model("moonshotai/Kimi-K2.5") == "moonshotai/Kimi-K2.5"


@pytest.mark.parametrize("model", ["./gone", ".cache/models/gone", "/no/such/model", "~/no-such-model"])
def test_a_path_without_a_folder_is_a_mistake_of_the_user(model: str) -> None:
    with pytest.raises(UserError, match="no model folder"):
        located_model(model)
