"""Values of secret variables never stand in a server's log, however the stream is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.trial.blindfold import Blindfold, secret_values
from tuner.trial.logfile import LogWriter


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_secret_is_hidden_wherever_the_stream_is_cut(size: int) -> None:
    said = b"key=geheim-1234 geheim-1234567 geheim-12 geheim\n\xff geheim-123"
    blindfold = Blindfold(["geheim-1234", "geheim-1234567"])
    pieces = [blindfold.hide(said[start : start + size]) for start in range(0, len(said), size)]
    shown = b"".join(pieces) + blindfold.rest()
    assert shown == b"key=*** *** geheim-12 geheim\n\xff geheim-123"


@pytest.mark.parametrize("size", [1, 2, 5, 8, 9, 100])
def test_secrets_that_overlap_or_begin_with_one_another_leave_nothing_of_any(size: int) -> None:
    said = b"a abcdefgh b abcdefghijkl c xyabcdefgh d xyabcdefghijklm abcdefgh"
    blindfold = Blindfold(["abcdefgh", "abcdefghijkl", "xyabcdefg"])
    pieces = [blindfold.hide(said[start : start + size]) for start in range(0, len(said), size)]
    assert b"".join(pieces) + blindfold.rest() == b"a *** b *** c *** d ***m ***"


def test_without_secrets_nothing_is_held_back() -> None:
    assert Blindfold([]).hide(b"geheim") == b"geheim"


def test_a_line_that_is_no_secret_is_not_held_back() -> None:
    assert Blindfold(["geheim-1234"]).hide(b"INFO: up\n") == b"INFO: up\n"


def test_secret_variables_count_by_name_and_short_values_do_not() -> None:
    environment = {"HF_TOKEN": "geheim-1234", "API_KEY": "1", "NCCL_PROTO": "LL128-LL128", "MY_PASSWORD": "geheim-5678"}
    assert secret_values(environment) == ["geheim-1234", "geheim-5678"]


def test_the_end_of_a_log_is_written_although_it_might_have_been_a_secret(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "server.log", hidden=["geheim-1234"])
    log.write(b"geheim-1234 and geheim-1")
    log.close()
    assert (tmp_path / "server.log").read_bytes() == b"*** and geheim-1"
