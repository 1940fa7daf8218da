"""YAML with positions: words stay words, and whatever is wrong is said with its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner import yamlfile
from tuner.errors import SpecError


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        yamlfile.parse(text, "f.yaml")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "y", "n", "On"])
def test_words_that_yaml_1_1_took_for_truth_values_stay_words(word: str) -> None:
    assert yamlfile.parse(f"a: {word}", "f").data == {"a": word}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", True),
        ("0x1F", 31),
        ("0o17", 15),
        ("010", 10),
        ("1_000", 1000),
        ("1e3", 1000.0),
        ("-2", -2),
        ("~", None),
    ],
)
def test_scalars_follow_yaml_1_2(written: str, value: object) -> None:
    assert yamlfile.parse(f"a: {written}", "f").data["a"] == value


def test_dates_stay_text() -> None:
    assert yamlfile.parse("a: 2026-01-01", "f").data == {"a": "2026-01-01"}


def test_literal_reading_keeps_scalars_as_written() -> None:
    data = yamlfile.parse("a: 0.80\nb: true\nc: 010\nd:\n", "f", literal=True).data
    assert data == {"a": "0.80", "b": "true", "c": "010", "d": None}


def test_values_and_keys_have_positions() -> None:
    document = yamlfile.parse("a: 1\nb:\n  - x\n  - y: [1, 2]\n", "f")
    assert (document.locate(("b", 1, "y", 1)).line, document.locate(("b", 1, "y", 1)).column) == (4, 12)
    assert document.locate(("b",), key=True).column == 1
    assert document.locate(("b",), key=True).source_line == "b:"


def test_a_path_that_the_file_lacks_is_placed_at_its_nearest_ancestor() -> None:
    document = yamlfile.parse("a: 1\nb:\n  c: 2\n", "f")
    assert document.locate(("b", "c", "d", 3)).line == 3


def test_quoted_and_plain_text_are_told_apart() -> None:
    document = yamlfile.parse("a: on\nb: 'on'\nc: \"on\"\nd: |\n  on\n", "f")
    assert [document.is_plain((key,)) for key in "abcd"] == [True, False, False, False]


def test_all_duplicate_keys_are_reported_together() -> None:
    assert problems("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n") == [
        "f.yaml:4:3 b.c: the key stands twice; first on line 3",
        "f.yaml:5:1 a: the key stands twice; first on line 1",
    ]


def test_tabs_are_named_as_the_cause() -> None:
    (problem,) = problems("a:\n\tb: 1\n")
    assert problem.startswith("f.yaml:2:1 ")
    assert "use spaces" in problem


def test_an_unquoted_colon_is_explained() -> None:
    (problem,) = problems("a: b: c")
    assert problem.startswith("f.yaml:1:5 ")
    assert "quotes" in problem


@pytest.mark.parametrize("text", ["a: [1", "a: *nothing", "%", "a: 'open", "a: }"])
def test_malformed_yaml_has_a_line(text: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith("f.yaml:")
    assert " " in problem


@pytest.mark.parametrize("tag", ["!!python/object:os.system x", "!include other.yaml", "!!python/name:os.system ''"])
def test_tags_build_no_objects(tag: str) -> None:
    assert "is not supported" in problems(f"a: {tag}")[0]


def test_nested_aliases_cannot_fill_the_memory() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20))
    assert any("aliases" in problem for problem in problems(bomb))


def test_an_alias_that_contains_itself_is_refused() -> None:
    assert "contains itself" in problems("a: &a [*a]")[0]


@pytest.mark.parametrize("text", ["[" * 600, "a: " + "{a: " * 70 + "1" + "}" * 70])
def test_endless_nesting_is_refused(text: str) -> None:
    assert "deep" in problems(text)[0]


def test_merge_keys_lose_to_the_mappings_own_keys() -> None:
    document = yamlfile.parse("x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\n", "f")
    assert document.data["y"] == {"a": 1, "b": 3}
    assert document.locate(("y", "b")).line == 4


def test_a_second_document_is_not_expected() -> None:
    assert "second document" in problems("a: 1\n---\nb: 2\n")[0]
    assert [one.data for one in yamlfile.parse_all("a: 1\n---\nb: 2\n", "f")] == [{"a": 1}, {"b": 2}]


def test_an_empty_file_is_a_document_without_data() -> None:
    assert yamlfile.parse("# nothing\n", "f").data is None


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf"])
def test_numbers_must_be_finite(number: str) -> None:
    assert "finite" in problems(f"a: {number}")[0]


class TestFiles:
    def refused(self, path: Path) -> str:
        with pytest.raises(SpecError) as caught:
            yamlfile.load(path)
        return str(caught.value)

    def test_a_missing_file(self, tmp_path: Path) -> None:
        assert "no such file" in self.refused(tmp_path / "gone.yaml")

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "is a folder" in self.refused(tmp_path)

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert "regular file" in self.refused(tmp_path / "pipe")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
    def test_an_unreadable_file(self, tmp_path: Path) -> None:
        (tmp_path / "secret.yaml").write_text("a: 1")
        (tmp_path / "secret.yaml").chmod(0)
        assert "cannot be read" in self.refused(tmp_path / "secret.yaml")

    def test_a_binary_file(self, tmp_path: Path) -> None:
        (tmp_path / "b.yaml").write_bytes(b"\xef\xbb\xbfa: 1\nb: \xc3\xa9\xff\xfe\n")
        assert "b.yaml:2:5 is not UTF-8 text: byte 0xff" in self.refused(tmp_path / "b.yaml")
        (tmp_path / "b.yaml").write_bytes(b"a\0b")
        assert "binary" in self.refused(tmp_path / "b.yaml")

    def test_a_huge_file(self, tmp_path: Path) -> None:
        (tmp_path / "h.yaml").write_bytes(b"a: 1\n" * 300_000)
        assert "larger than" in self.refused(tmp_path / "h.yaml")

    def test_windows_line_ends_and_a_byte_order_mark_are_read(self, tmp_path: Path) -> None:
        (tmp_path / "w.yaml").write_bytes(b"\xef\xbb\xbfa: 1\r\nb: x\r\n")
        document = yamlfile.load(tmp_path / "w.yaml")
        assert document.data == {"a": 1, "b": "x"}
        assert document.locate(("b",)).source_line == "b: x"


@pytest.mark.parametrize("text", ['a: "\\UFFFFFFFF"', 'a: "\\U00110000"', 'a: "\\ud800"', 'a: "x\\0y"', '"\\ud800": 1'])
def test_escapes_for_what_no_program_can_be_given_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        yamlfile.parse(text, "f.yaml")
