"""Signature files: what an operator writes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.engines.definition import engine_names
from tuner.engines.failures import explain
from tuner.engines.signatures import FILE_NAME, Direction, Signature, SignatureBook, compile_pattern, load_book
from tuner.errors import SpecError

ROW = """
signatures:
  - id: my-row
    class: unsupported
    match: 'needs page size \\d+'
    blames: { page-size: change }
    proof: "ValueError: this needs page size 64"
"""


@pytest.fixture
def launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of launchers of our own, with one engine `mine`."""
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("TUNER_LAUNCHERS", str(tmp_path))
    return tmp_path


def book(launchers: Path, text: str) -> SignatureBook:
    (launchers / "mine" / FILE_NAME).write_text(text)
    return load_book("mine")


def refused(launchers: Path, text: str) -> str:
    with pytest.raises(SpecError) as caught:
        book(launchers, text)
    return str(caught.value)


@pytest.mark.parametrize("engine", engine_names())
def test_every_row_of_the_shipped_files_matches_its_own_proof_across_prefixes(engine: str) -> None:
    rows = load_book(engine)
    for row in (*rows.signatures, *rows.wrappers, *rows.harmless, *rows.phases, *rows.frames, *rows.compiling):
        assert row.regex.search(row.proof), row.match


@pytest.mark.parametrize("engine", engine_names())
def test_every_shipped_signature_decides_for_its_own_proof(engine: str) -> None:
    for row in load_book(engine).signatures:
        if row.near or row.if_set or row.at_end or row.only_in:
            continue  # wants company, which a single line does not give
        level = "ERROR 01-01 10:00:00 [a.py:1] " if row.only_error else ""
        failure = explain([f"{level}{line}" for line in row.proof.splitlines()], engine=engine, exit_code=1)
        assert failure is not None, row.id
        assert failure.failure_class is row.failure, row.id


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_every_role_that_a_row_blames_is_named_by_an_engine(engine: str) -> None:
    rows = load_book(engine)
    for row in (*rows.signatures, *rows.hangs):
        for name in row.blames:
            assert name.startswith("--") or name.isupper() or "*" in name or rows.settings_of({name: Direction.DROP}), (
                name
            )


def test_a_role_becomes_each_engines_own_flag() -> None:
    blamed = {engine: load_book(engine).settings_of({"memory-share": Direction.LOWER}) for engine in ("sglang", "vllm")}
    assert list(blamed["vllm"]) == ["--gpu-memory-utilization"]
    assert list(blamed["sglang"]) == ["--mem-fraction-static"]


def test_a_row_is_five_lines(launchers: Path) -> None:
    (row,) = book(launchers, ROW).signatures
    assert isinstance(row, Signature)
    assert row.failure.value == "unsupported"


def test_a_blank_stands_for_white_space_quotes_and_line_breaks() -> None:
    pattern = compile_pattern("page size is wrong")
    for text in (
        "page size is wrong",
        'page size "\n    "is wrong',
        "page  size\tis\nwrong",
        'page size "\n  f"is wrong',
    ):
        assert pattern.search(text), text
    assert not pattern.search("page and size is wrong")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("class: unsupported", "class: unsuported"), "did you mean unsupported?"),
        (("needs page size \\d+", "needs page size 65"), "does not match its own proof"),
        (("needs page size \\d+", "needs .* size"), "bound the gap"),
        (("needs page size \\d+", "needs (page"), "not a regular expression"),
        (("needs page size \\d+", "\\w+ page size"), "begin with something fixed"),
        (("needs page size \\d+", "never|(?:[a-z]* page size)"), "begin with something fixed"),
        (("needs page size \\d+", "needs [ p]age"), "instead of a blank"),
        (("needs page size \\d+", "x?"), "matches an empty line"),
        (("blames: { page-size: change }", "blames: { page-size: up }"), "blames"),
        (("blames:", "blame:"), "signatures[0].blame: unknown key (did you mean blames?)"),
        (("blames:", "at_end: true\n    blames:"), "signatures[0].at_end: must be a whole number, not true"),
        (("id: my-row", "id: My Row"), "signatures[0].id: must be lower-case words or numbers with - between them"),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(launchers: Path, change: tuple[str, str], said: str) -> None:
    message = refused(launchers, ROW.replace(*change))
    assert said in message
    assert f"{FILE_NAME}:" in message


def test_two_rows_of_one_name_are_refused(launchers: Path) -> None:
    assert "two rows have this id" in refused(launchers, ROW + ROW.replace("\nsignatures:\n", ""))


def test_of_two_rows_that_match_the_engines_own_wins(launchers: Path) -> None:
    (launchers / "shared").mkdir()
    shared = ROW.replace("my-row", "their-row").replace("class: unsupported", "class: bad_flag")
    (launchers / "shared" / FILE_NAME).write_text(shared)
    book(launchers, f"extends: [shared]\n{ROW}\nhangs:\n  - class: engine_stall\n")
    failure = explain(["ValueError: this needs page size 64"], engine="mine")
    assert failure is not None
    assert failure.failure_class.value == "unsupported"


def test_an_engine_without_its_file_is_an_error_that_names_it(launchers: Path) -> None:
    with pytest.raises(SpecError, match=r"mine.*no such file"):
        load_book("mine")
