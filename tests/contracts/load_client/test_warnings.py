"""What a level warns of is what was really seen: each warning fires where its cause is, and only there."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.measuring import run, work
from support.scripted_server import DONE, END, HEAD, Step, good, serving, token

from tuner.domain.warnings import WarningCode
from tuner.loadgen.record import RequestRecord
from tuner.trial.protocol import LevelProgress, Stage, measure
from tuner.trial.statistics import quantile


def uncounted(body: dict[str, Any], _number: int) -> Iterator[Step]:
    """Every token asked for, but neither a count nor a word about why the answer ends."""
    yield HEAD
    for _ in range(body["max_tokens"]):
        yield 0.002
        yield token()
    yield DONE + END


def capped(body: dict[str, Any], number: int) -> Iterator[Step]:
    """The same, but the last event says that the asked length was reached."""
    *steps, _ = uncounted(body, number)
    yield from steps
    yield token("", finish_reason="length") + DONE + END


class TestCountedByChunks:
    def test_where_the_server_says_nothing_chunks_are_counted_and_the_level_says_so(self) -> None:
        for level in run(uncounted):
            assert level.valid
            assert WarningCode.COUNTED_BY_CHUNKS.value in level.warnings

    @pytest.mark.parametrize("script", [good, capped], ids=["usage", "length"])
    def test_a_count_or_a_reached_length_is_as_good_as_usage(self, script: Any) -> None:
        for level in run(script):
            assert WarningCode.COUNTED_BY_CHUNKS.value not in level.warnings

    def test_one_such_answer_among_others_marks_its_level(self) -> None:
        (four,) = run(lambda body, n: uncounted(body, n) if n == 8 else good(body, n), levels=(4,))
        assert four.valid
        assert WarningCode.COUNTED_BY_CHUNKS.value in four.warnings


class TestDatasetRepeated:
    def prompts(self, folder: Path, count: int) -> dict[str, str]:
        """A data set of different prompts, as a workload's shape."""
        file = folder / "prompts.jsonl"
        file.write_text("".join(json.dumps({"token_ids": [n, 1, 2, 3]}) + "\n" for n in range(count)))
        return {"kind": "jsonl", "path": str(file)}

    def test_a_data_set_with_fewer_prompts_than_requests_is_repeated_and_the_level_says_so(
        self, tmp_path: Path
    ) -> None:
        with serving(good) as server:
            (four,) = measure(server.url, "m", work(levels=(4,), shape=self.prompts(tmp_path, 5)), seed=1)
        assert four.valid
        assert four.asked > 5
        assert WarningCode.DATASET_REPEATED.value in four.warnings
        assert len({tuple(body["prompt"]) for body in server.bodies if body["prompt"][1:] == [1, 2, 3]}) == 5

    def test_a_data_set_that_is_long_enough_is_not(self, tmp_path: Path) -> None:
        (four,) = run(good, levels=(4,), shape=self.prompts(tmp_path, 500))
        assert WarningCode.DATASET_REPEATED.value not in four.warnings


class TestScheduleMissed:
    PLAN = work(levels=(1,), rates=(50.0,), arrivals="constant", rate_seconds=2.0)

    def delays(self, folder: Path) -> list[float]:
        """How late each request of the rate was sent, in seconds, the latest last."""
        with gzip.open(folder / "requests-rate50-r1.jsonl.gz", "rt") as lines:
            records = [RequestRecord.from_json(line) for line in lines]
        return sorted(record.sent_at - record.scheduled_at for record in records)

    def test_a_client_that_is_held_up_sends_late_and_the_rate_says_so(self, tmp_path: Path) -> None:
        held_up = threading.Event()

        def hold_up(progress: LevelProgress) -> None:
            if progress.load.rate is None or progress.stage is not Stage.LEVEL or held_up.is_set():
                return
            held_up.set()
            for child in psutil.Process(os.getpid()).children():
                if "tuner.loadgen.worker" in child.cmdline():
                    child.suspend()
                    threading.Timer(0.4, child.resume).start()

        with serving(good) as server:
            alone, rate = measure(server.url, "m", self.PLAN, seed=1, on_progress=hold_up, raw_dir=tmp_path)
        assert rate.valid
        late = self.delays(tmp_path)
        assert len(late) == rate.asked == 100
        assert late[-1] > 0.2, "one that was due when the client stopped had to wait"
        assert WarningCode.SCHEDULE_MISSED.value in rate.warnings
        assert WarningCode.SCHEDULE_MISSED.value not in alone.warnings

    def test_a_rate_that_was_kept_to_says_nothing(self, tmp_path: Path) -> None:
        with serving(good) as server:
            _, rate = measure(server.url, "m", self.PLAN, seed=1, raw_dir=tmp_path)
        late = self.delays(tmp_path)
        # A busy machine may make even this one late: then it has to say so.
        assert (WarningCode.SCHEDULE_MISSED.value in rate.warnings) is (quantile(late, 0.99) > 0.005)
