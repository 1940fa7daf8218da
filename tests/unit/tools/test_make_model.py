"""The model maker: what a folder holds, and that it can be made again."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from jinja2 import Environment, StrictUndefined
from tokenizers import Tokenizer

TOOL = Path(__file__).parents[3] / "tools" / "make_model.py"


@pytest.fixture(scope="module")
def folder(make_model: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    make_model.make_model(made, make_model.SIZES["tiny"])
    return Path(made)


def read(path: Path) -> dict[str, object]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def test_the_tokenizer_covers_the_vocabulary_of_the_model(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == read(folder / "config.json")["vocab_size"] == 1024


@pytest.mark.parametrize("text", ["plain words", "Ümläute, 漢字 and 🙂", "  spaces\tand\nlines "])
def test_any_text_survives_encoding_and_decoding(folder: Path, text: str) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_special_tokens_have_the_same_numbers_everywhere(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    names, config = read(folder / "tokenizer_config.json"), read(folder / "config.json")
    generation = read(folder / "generation_config.json")
    for kind in ("bos", "eos", "pad"):
        number = tokenizer.token_to_id(str(names[f"{kind}_token"]))
        assert number is not None
        assert config[f"{kind}_token_id"] == generation[f"{kind}_token_id"] == number


def test_the_chat_template_ends_where_the_assistant_speaks(folder: Path) -> None:
    template = Environment(undefined=StrictUndefined).from_string(
        str(read(folder / "tokenizer_config.json")["chat_template"])
    )
    messages = [{"role": "user", "content": "hello"}]
    text = template.render(messages=messages, bos_token="<|begin|>", add_generation_prompt=True)
    assert text == "<|begin|>user: hello\nassistant: "


def test_the_mid_model_has_the_shape_that_needs_ten_milliseconds_a_step(make_model: ModuleType) -> None:
    mid = make_model.SIZES["mid"]
    assert (mid.hidden, mid.layers, mid.vocabulary, mid.heads, mid.kv_heads, mid.intermediate) == (
        1024,
        8,
        8192,
        16,
        4,
        4096,
    )


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path, folder: Path) -> None:
    for seed in ("0", "1"):
        command = [sys.executable, TOOL, "--size", "tiny", "--seed", seed, "-o", tmp_path / seed]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(tmp_path / seed)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = {path.name: path.read_bytes() for path in (tmp_path / "0").iterdir()}
    assert again == first
    assert (tmp_path / "1" / "tokenizer.json").read_bytes() != first["tokenizer.json"]


def test_a_vocabulary_that_the_text_cannot_fill_is_refused(
    make_model: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_model, "_made_up_text", lambda words, chance: ["ab"])
    with pytest.raises(ValueError, match="instead of 1024"):
        make_model.train_tokenizer(1024, seed=0)


def test_the_small_deepseek_has_the_published_width_and_fits_one_gpu(make_model: ModuleType) -> None:
    """Parameters by hand, as in the published model's own report: MLA, one dense layer, experts, embeddings."""
    size = make_model.SIZES["deepseek-small"]
    config = size.config()
    assert (config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]) == (7168, 128, 512)
    h, heads, q, kv = size.hidden, size.heads, size.query_rank, size.kv_rank
    attention = h * q + q * heads * (size.head_dim + size.rope_dim) + h * (kv + size.rope_dim)
    attention += kv * heads * 2 * size.head_dim + heads * size.head_dim * h
    experts = (size.experts + 1) * 3 * h * size.expert_intermediate + h * size.experts
    total = size.layers * attention + 3 * h * size.dense_intermediate + (size.layers - 1) * experts
    total += 2 * size.vocabulary * h
    assert 40 < 2 * total / 1e9 < 60  # GB in bfloat16


def test_every_size_can_be_split_over_the_gpus_that_it_is_for(make_model: ModuleType) -> None:
    small = make_model.SIZES["deepseek-small"]
    for ranks in (2, 4, 8):
        assert small.heads % ranks == small.experts % ranks == small.expert_intermediate % ranks == 0
    assert all(make_model.SIZES[name].kv_heads % 8 == 0 for name in ("8b", "70b"))


def test_a_folder_of_experts_and_latent_attention_says_so(make_model: ModuleType, tmp_path: Path) -> None:
    make_model.make_model(tmp_path, make_model.SIZES["deepseek-tiny"])
    config = read(tmp_path / "config.json")
    assert config["model_type"] == "deepseek_v3"
    assert config["n_routed_experts"] == 8
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab_size() == config["vocab_size"]
