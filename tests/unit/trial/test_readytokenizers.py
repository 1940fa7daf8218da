"""Tokenizers that one server made are found ready by the next: real processes, with a stand-in for transformers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.launches import eventually, has_written, installed_plan

from tuner.engines.definition import Warm
from tuner.trial.process import launch
from tuner.trial.warm import WarmParents

# Every making leaves its process's number; what is made depends on a file, an argument and a variable.
TRANSFORMERS = """
import os, threading
from pathlib import Path

class PreTrainedTokenizerBase:
    def __del__(self):
        with open(os.environ["MADE"] + ".freed", "a") as freed:
            freed.write(f"{os.getpid()}\\n")

    @classmethod
    def from_pretrained(cls, folder, *inputs, **options):
        with open(os.environ["MADE"], "a") as made:
            made.write(f"{os.getpid()}\\n")
        if "never_in" in options and options["never_in"] == os.environ["TUNER_LAUNCH_ID"]:
            raise OSError("not here")
        if "sets" in options:
            os.environ[options["sets"]] = "1"
        if options.get("threads"):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        made = cls()
        made.said = [(Path(folder) / "words").read_text(), cls.__name__, os.environ.get("WORD_FORMS"), *inputs]
        return made

class Fast(PreTrainedTokenizerBase):
    pass
"""

ENGINE = """
import json, multiprocessing, os, sys, time
from transformers.tokenization_utils_base import Fast

wish = json.loads(sys.argv[1])

def make():
    return Fast.from_pretrained(wish["folder"], *wish["inputs"], **wish["options"])

def work(told):
    made = [make(), make()]
    told.put([os.getpid(), [one.said for one in made], made[0] is made[1]])

def main():
    os.chdir(wish["cwd"])
    if "throws away" in sys.argv:
        make()
    if "closes" in sys.argv:
        os.closerange(3, 100)
        files = [open("taken", "a") for _ in range(20)]
    own = make()
    told = multiprocessing.Queue()
    process = multiprocessing.Process(target=work, args=[told])
    process.start()
    worker, said, shared = told.get()
    process.join()
    words = {"said": [own.said, *said], "shared": shared, "pids": [os.getpid(), worker]}
    print("server", json.dumps(words), flush=True)
    time.sleep(600)
"""

WARM = Warm(modules=("transformers.tokenization_utils_base",), fork_workers=True)

pytestmark = pytest.mark.slow


@dataclass
class Seen:
    """One launch: what its tokenizers say, whether two are one object, and how many it made itself."""

    said: list[list[Any]]
    shared: bool
    made: int


@dataclass
class Engine:
    """Launches the toy engine, whose server makes one tokenizer and whose worker makes two."""

    folder: Path
    parents: WarmParents
    launches: int = field(default=0, init=False)

    @property
    def words(self) -> Path:
        return self.folder / "model" / "words"

    @property
    def freed(self) -> int:
        """How many tokenizers a running server has thrown away so far."""
        freed = Path(f"{self.folder / 'made'}.freed")
        return len(freed.read_text().split()) if freed.exists() else 0

    @property
    def makers(self) -> list[str]:
        return (self.folder / "made").read_text().split()

    def launch(
        self, *inputs: Any, model: str = "", options: dict[str, Any] | None = None, more: Sequence[str] = (), **env: str
    ) -> Seen:
        self.launches += 1
        run = self.folder / f"run-{self.launches}"
        folder = model or str(self.folder / "model")
        wish = {"folder": folder, "inputs": inputs, "options": options or {}, "cwd": str(self.folder)}
        plan = installed_plan(self.folder / "serve", json.dumps(wish), *more, MADE=str(self.folder / "made"), **env)
        with launch(plan, run, warm=self.parents.parent_for(plan, WARM, self.folder / "warm.log")):
            assert eventually(has_written(run, "server "))
            lines = (run / "server.log").read_text().splitlines()
        told = json.loads(next(line for line in lines if line.startswith("server ")).partition(" ")[2])
        own = [maker for maker in self.makers if int(maker) in told["pids"]]
        return Seen(told["said"], told["shared"], len(own))


@pytest.fixture
def engine(tmp_path: Path, parents: WarmParents) -> Engine:
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").touch()
    (tmp_path / "transformers" / "tokenization_utils_base.py").write_text(TRANSFORMERS)
    (tmp_path / "making.py").write_text(ENGINE)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "words").write_text("a b c")
    script = tmp_path / "serve"
    script.write_text(f"#!{sys.executable}\nimport making\nif __name__ == '__main__':\n    making.main()\n")
    script.chmod(0o755)
    return Engine(tmp_path, parents)


ALL_OF_THEM = [["a b c", "Fast", None]] * 3


def test_the_next_server_makes_none_and_no_two_places_share_one(engine: Engine) -> None:
    assert engine.launch() == Seen(ALL_OF_THEM, shared=False, made=3)
    # The worker took two after the server's own, so there are three; made once, they are there for all that follow.
    assert engine.launch() == Seen(ALL_OF_THEM, shared=False, made=0)
    assert len(engine.makers) == 6
    assert engine.launch() == Seen(ALL_OF_THEM, shared=False, made=0)
    assert len(engine.makers) == 6


def test_other_files_ask_for_another_tokenizer(engine: Engine) -> None:
    engine.launch()
    engine.launch()
    engine.words.write_text("d e f g")
    assert engine.launch() == Seen([["d e f g", "Fast", None]] * 3, shared=False, made=3)
    assert engine.launch().made == 0


def test_other_arguments_ask_for_another_tokenizer(engine: Engine) -> None:
    engine.launch("x")
    assert engine.launch("y") == Seen([["a b c", "Fast", None, "y"]] * 3, shared=False, made=3)
    assert engine.launch("x").made == 0


def test_a_variable_that_making_asked_for_is_looked_at_again(engine: Engine) -> None:
    engine.launch()
    assert engine.launch(NEVER_ASKED_FOR="1").made == 0
    assert engine.launch(WORD_FORMS="lower") == Seen([["a b c", "Fast", "lower"]] * 3, shared=False, made=3)


def test_a_folder_that_depends_on_where_the_server_runs_is_left_to_it(engine: Engine) -> None:
    for _ in range(2):
        assert engine.launch(model="model").made == 3


def test_one_that_a_server_throws_away_at_once_is_not_freed_since_that_would_copy_its_pages(engine: Engine) -> None:
    engine.launch(more=["throws away"])
    own = engine.freed
    assert own >= 1, "what it made itself is its own to free"
    assert engine.launch(more=["throws away"]).made == 0
    assert engine.freed == own


def test_what_starts_threads_is_left_to_servers(engine: Engine) -> None:
    for _ in range(2):
        assert engine.launch(options={"threads": True}).made == 3
    assert len(engine.makers) == 6


def test_what_sets_a_variable_is_left_to_servers_and_the_parent_stays_as_it_was(engine: Engine) -> None:
    sets = {"sets": "WORD_FORMS"}
    for _ in range(2):
        assert engine.launch(options=sets) == Seen([["a b c", "Fast", "1"]] * 3, shared=False, made=3)
    assert len(engine.makers) == 3 + 1 + 3
    engine.launch()
    assert engine.launch() == Seen(ALL_OF_THEM, shared=False, made=0)


def test_what_fails_in_the_parent_is_left_to_servers_and_not_tried_there_again(engine: Engine) -> None:
    only_in_servers = {"never_in": "0" * 32}  # the mark of the parent's launch, which is none
    for _ in range(3):
        assert engine.launch(options=only_in_servers) == Seen(ALL_OF_THEM, shared=False, made=3)
    assert len(engine.makers) == 3 * 3 + 1


def test_a_server_that_closes_all_files_writes_no_note_into_another(engine: Engine) -> None:
    for _ in range(2):
        assert engine.launch(more=["closes"]).made == 3
    assert (engine.folder / "taken").read_text() == ""
