"""Logs of any size and any bytes, at bounded cost."""

from __future__ import annotations

from pathlib import Path

from support.launches import eventually, rogue_plan

from tuner.trial import logfile
from tuner.trial.logfile import LogFollower, LogWriter, join_segments
from tuner.trial.process import launch


def test_a_short_log_is_one_file_word_for_word(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    writer = LogWriter(log)
    writer.write(b"one\n")
    writer.write(b"two \xff\n")
    writer.close()
    assert log.read_bytes() == b"one\ntwo \xff\n"
    assert list(tmp_path.iterdir()) == [log]


def test_a_flood_keeps_head_and_tail_and_says_how_much_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    writer = LogWriter(log, head_bytes=100, segment_bytes=100)
    for number in range(100):
        writer.write(f"line {number:04}\n".encode())
    writer.close()
    text = log.read_text()
    assert text.startswith("line 0000\n")
    assert text.endswith("line 0099\n")
    assert "700 bytes of a flood left out here" in text
    assert len(text) < 400
    assert list(tmp_path.iterdir()) == [log]


def test_segments_left_by_a_killed_guard_are_joined_later(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    writer = LogWriter(log, head_bytes=10, segment_bytes=10)
    writer.write(b"a" * 9 + b"\n" + b"b" * 9 + b"\n")
    join_segments(log)
    join_segments(log)
    assert log.read_bytes() == b"aaaaaaaaa\nbbbbbbbbb\n"


def test_the_server_is_not_blocked_by_a_full_disk(tmp_path: Path) -> None:
    writer = LogWriter(Path("/dev/full"))
    writer.write(b"nowhere to go")
    assert writer.lost == len(b"nowhere to go")


def test_the_follower_gives_each_line_once_and_keeps_an_unfinished_one(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    follower = LogFollower(log)
    assert follower.lines() == []
    log.write_bytes(b"first\nsec")
    assert follower.lines() == ["first"]
    with log.open("ab") as file:
        file.write(b"ond\nthird")
    assert follower.lines() == ["second"]
    assert follower.rest() == ["third"]
    assert follower.seen_bytes == len(b"first\nsecond\nthird")


def test_a_progress_bar_counts_as_lines_and_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"10%\r50%\r100%\r\n\xff\xfe bytes\n")
    assert LogFollower(log).lines() == ["10%", "50%", "100%", "�� bytes"]


def test_a_line_without_end_is_cut_rather_than_kept_in_memory(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"x" * 200_000)
    assert sum(map(len, LogFollower(log).lines())) == 200_000


def test_the_follower_goes_from_segment_to_segment(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    writer = LogWriter(log, head_bytes=8, segment_bytes=8)
    follower = LogFollower(log)
    seen: list[str] = []
    for number in range(6):
        writer.write(f"line {number:02}\n".encode())
        seen += follower.lines()
    writer.close()
    assert seen == [f"line {number:02}" for number in range(6)]


def test_the_follower_jumps_ahead_of_a_backlog_and_counts_what_it_jumped(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"y" * 99 + b"\n")
    follower = LogFollower(log)
    follower.lines()
    with log.open("ab") as file:
        file.truncate(200_000_000)
        file.seek(0, 2)
        file.write(b"\nthe end\n")
    lines = follower.rest()
    assert lines[-1] == "the end"
    assert sum(map(len, lines)) < 1_000_000
    assert follower.seen_bytes == log.stat().st_size


def test_a_real_flood_is_bounded_and_ends_with_the_last_words(tmp_path: Path) -> None:
    bound = logfile.HEAD_BYTES + logfile.KEPT_SEGMENTS * logfile.SEGMENT_BYTES
    lines = 2 * bound // 100
    plan = rogue_plan("flood", env={"FLOOD_LINES": str(lines)})
    with launch(plan, tmp_path) as server:
        assert eventually(lambda: server.poll() == 0, timeout_s=120)
    log = tmp_path / "server.log"
    assert log.stat().st_size < bound + 200
    with log.open("rb") as file:
        assert file.read(10) == b"mode flood"
        file.seek(-16, 2)
        assert file.read().endswith(b"last words\n")


def test_bytes_that_are_no_text_reach_the_log_unchanged(tmp_path: Path) -> None:
    with launch(rogue_plan("garbage"), tmp_path) as server:
        assert eventually(lambda: server.poll() == 0)
    assert b"before \xff\xfe\x00 after\n" in (tmp_path / "server.log").read_bytes()
    assert "bar 2" in server.log.rest()
