"""Give a Llama model folder of `make_model.py` random weights of its own, to load instead of dummy ones.

    python tools/make_weights.py .cache/models/mid --seed 1 -o .cache/models/mid-1

Engines fill dummy weights with numbers so small that the model finds all tokens about equally likely: any two servers
answer differently, and nobody can tell a wrong one. The weights written here keep the signal's size from layer to layer
(variance one over the inputs, as LeCun et al., Efficient BackProp, 1998, reason), and the last layer is made larger, so
that the likeliest token leads clearly. Another seed is another model: the same speed, other answers.
"""

import argparse
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FILE = "model.safetensors"
LOGIT_DEVIATION = 4.0
"""Of the last layer's output: among 1,000 to 100,000 tokens the first then leads the second by about a nat."""

Shape = tuple[int, ...]


def shapes_of(config: dict[str, int]) -> Iterator[tuple[str, Shape]]:
    """Names and shapes of a Llama checkpoint's tensors, as transformers' LlamaForCausalLM names them."""
    hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries, keys = (config[name] * config["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        yield f"{name}.input_layernorm.weight", (hidden,)
        yield f"{name}.self_attn.q_proj.weight", (queries, hidden)
        yield f"{name}.self_attn.k_proj.weight", (keys, hidden)
        yield f"{name}.self_attn.v_proj.weight", (keys, hidden)
        yield f"{name}.self_attn.o_proj.weight", (hidden, queries)
        yield f"{name}.post_attention_layernorm.weight", (hidden,)
        yield f"{name}.mlp.gate_proj.weight", (inner, hidden)
        yield f"{name}.mlp.up_proj.weight", (inner, hidden)
        yield f"{name}.mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocabulary, hidden)


def make_weights(folder: Path, seed: int) -> None:
    """Write `model.safetensors` into a model folder; the same configuration and seed give the same bytes.

    The file is a header's length (8 bytes), the header as JSON, and the numbers in bfloat16
    (https://github.com/huggingface/safetensors#format).

    Raises:
        ValueError: the folder holds no Llama model.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] != "llama":
        raise ValueError(f"{folder} holds a model of type {config['model_type']}; only llama is known")
    shapes, header, end = dict(shapes_of(config)), dict[str, object](__metadata__={"format": "pt"}), 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (begin, end)}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    chance = np.random.default_rng(seed)
    with (folder / FILE).open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name, shape in shapes.items():
            file.write(_bfloat16(_tensor(name, shape, chance)).tobytes())


def _tensor(name: str, shape: Shape, chance: np.random.Generator) -> NDArray[np.float32]:
    if len(shape) == 1:
        return np.ones(shape, dtype=np.float32)
    deviation = 1.0 if "embed" in name else 1 / math.sqrt(shape[1])
    if name == "lm_head.weight":
        deviation *= LOGIT_DEVIATION
    return chance.standard_normal(shape, dtype=np.float32) * np.float32(deviation)


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper half of each number, rounded."""
    return ((values.view(np.uint32) + 0x8000) >> 16).astype("<u2")


def main() -> None:
    parser = argparse.ArgumentParser(description="Give a model folder random weights.")
    parser.add_argument("model", type=Path, help="folder that make_model.py wrote")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, help="make a copy with weights instead")
    arguments = parser.parse_args()
    folder = arguments.output or arguments.model
    if folder != arguments.model:
        shutil.copytree(arguments.model, folder, dirs_exist_ok=True)
    make_weights(folder, arguments.seed)
    print(folder)


if __name__ == "__main__":
    main()
