"""What is wrong with a baseline's command is told at the word that is wrong, however YAML wrote the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.engines.catalogue import catalogues
from tuner.errors import SpecError
from tuner.spec import load_space

HEAD = """name: t
model: m
knobs: {{max_num_seqs: {{int: {{low: 64, high: 1024}}, flag: --max-num-seqs, default: 256}}}}
engines:
  vllm:
    baseline:
{command}
"""


def problems(folder: Path, command: str) -> list[tuple[int, int, str]]:
    """(line, column, the source from there on) of each error."""
    file = folder / "t.yaml"
    text = HEAD.format(command=command)
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_space(str(file), catalogues=catalogues())
    lines = text.split("\n")
    return [(p.line, p.column, lines[p.line - 1][p.column - 1 :]) for p in caught.value.problems]


@pytest.mark.parametrize(
    "command",
    [
        "      command: vllm serve m --no-such-flag 4 --max-num-seqs 4096",
        '      command: "vllm serve m --no-such-flag 4 --max-num-seqs 4096"',
        "      command: 'vllm serve m --no-such-flag=4 --max-num-seqs=4096'",
        "      command: |\n        vllm serve m \\\n          --no-such-flag 4 \\\n          --max-num-seqs 4096",
        "      command: >-\n        vllm serve m\n        --no-such-flag 4\n        --max-num-seqs 4096",
        "      command: |\n        vllm serve m --no-such-flag 4 --max-num-seqs 4096\n        # --max-num-seqs 9",
    ],
    ids=["plain", "double", "single", "block", "folded", "comment"],
)
def test_each_word_that_is_wrong_is_pointed_at(tmp_path: Path, command: str) -> None:
    unknown, refused = problems(tmp_path, command)
    assert unknown[2].startswith("--no-such-flag")
    assert refused[2].startswith(("--max-num-seqs 4096", "--max-num-seqs=4096"))


def test_of_a_repeated_flag_the_one_that_counts_is_pointed_at(tmp_path: Path) -> None:
    command = "      command: vllm serve m --max-num-seqs 2048 --dtype auto --max-num-seqs 4096"
    ((_line, _column, rest),) = problems(tmp_path, command)
    assert rest == "--max-num-seqs 4096"


def test_a_longer_flag_is_another_word(tmp_path: Path) -> None:
    command = "      command: vllm serve m --max-num-seqs 4096 --max-num-seqs-other 3"
    found = problems(tmp_path, command)
    assert sorted(rest for _, _, rest in found) == [
        "--max-num-seqs 4096 --max-num-seqs-other 3",
        "--max-num-seqs-other 3",
    ]


def test_a_variable_is_pointed_at_too(tmp_path: Path) -> None:
    command = "      command: |\n        export NCCL_ALGO=Ring\n        NCCL_NVLS_ENABLE=$MISSING vllm serve m --port 1"
    found = problems(tmp_path, command)
    assert [rest.split("=")[0] for _, _, rest in found] == ["NCCL_NVLS_ENABLE"]


def test_a_flag_of_another_file_is_told_at_the_command(tmp_path: Path) -> None:
    (tmp_path / "flags.yaml").write_text("max-num-seqs: 4096\n")
    ((line, _column, rest),) = problems(tmp_path, "      command: vllm serve m --config flags.yaml")
    assert (line, rest) == (7, "vllm serve m --config flags.yaml")
