"""Make a model folder for tests: no weights, no download.

The folder holds a configuration and a byte-pair tokenizer that is trained here on made-up text. Engines start it with
`--load-format dummy`, which fills the weights with random numbers; its answers mean nothing, its speed does.

    python tools/make_model.py --size mid -o .cache/models/mid

`tiny` starts fastest. `mid` needs about 10 ms for a decode step on two CPU cores: with a much smaller model, all
tokens of a request reach the client at once and there is no inter-token latency to measure. `8b` and `70b` have the
shapes of Llama-3.1 (its published configurations), for GPUs.

`deepseek-small` is DeepSeek-V3 cut down to one GPU of 80 GB: width, heads and latent attention (MLA) as published, so
that kernels and messages between GPUs are the real ones, but 8 layers instead of 61 and 64 experts instead of 256:
24 billion parameters, 48 GB in bfloat16. `deepseek-tiny` has the same parts and fits everywhere.
"""

import argparse
import json
import random
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

BEGIN, END, PAD = SPECIAL_TOKENS = ("<|begin|>", "<|end|>", "<|pad|>")
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
CONTEXT_TOKENS = 4096


@dataclass(frozen=True)
class Llama:
    """Shape of a dense model, in Llama's terms."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int

    def config(self) -> dict[str, object]:
        """The part of `config.json` that the family alone has."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.hidden // self.heads,
            "rms_norm_eps": 1e-05,
            "mlp_bias": False,
        }


@dataclass(frozen=True)
class DeepSeek:
    """Shape of a model with latent attention and experts, in the terms of DeepSeek-V3 (as published, by default)."""

    layers: int
    experts: int
    hidden: int = 7168
    dense_intermediate: int = 18432
    expert_intermediate: int = 2048
    heads: int = 128
    query_rank: int = 1536
    kv_rank: int = 512
    head_dim: int = 128
    rope_dim: int = 64
    groups: int = 8
    groups_per_token: int = 4
    experts_per_token: int = 8
    vocabulary: int = 129280

    def config(self) -> dict[str, object]:
        """The part of `config.json` that the family alone has; one dense layer, then experts."""
        return {
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            "hidden_size": self.hidden,
            "intermediate_size": self.dense_intermediate,
            "moe_intermediate_size": self.expert_intermediate,
            "num_hidden_layers": self.layers,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "q_lora_rank": self.query_rank,
            "kv_lora_rank": self.kv_rank,
            "qk_nope_head_dim": self.head_dim,
            "qk_rope_head_dim": self.rope_dim,
            "v_head_dim": self.head_dim,
            "n_routed_experts": self.experts,
            "n_shared_experts": 1,
            "num_experts_per_tok": self.experts_per_token,
            "n_group": self.groups,
            "topk_group": self.groups_per_token,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "rms_norm_eps": 1e-06,
        }


Size = Llama | DeepSeek

SIZES: dict[str, Size] = {
    "tiny": Llama(hidden=128, intermediate=256, layers=2, heads=4, kv_heads=2, vocabulary=1024),
    "mid": Llama(hidden=1024, intermediate=4096, layers=8, heads=16, kv_heads=4, vocabulary=8192),
    "8b": Llama(hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8, vocabulary=128256),
    "70b": Llama(hidden=8192, intermediate=28672, layers=80, heads=64, kv_heads=8, vocabulary=128256),
    "deepseek-small": DeepSeek(layers=8, experts=64),
    "deepseek-tiny": DeepSeek(
        layers=2,
        experts=8,
        hidden=128,
        dense_intermediate=256,
        expert_intermediate=64,
        heads=4,
        query_rank=64,
        kv_rank=32,
        head_dim=32,
        rope_dim=16,
        groups=2,
        groups_per_token=1,
        experts_per_token=2,
        vocabulary=1024,
    ),
}


def make_model(folder: Path, size: Size, seed: int = 0) -> None:
    """Write a model folder; the same size and seed give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(size.vocabulary, seed)
    begin, end, pad = (tokenizer.token_to_id(token) for token in SPECIAL_TOKENS)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BEGIN,
            "eos_token": END,
            "pad_token": PAD,
            "model_max_length": CONTEXT_TOKENS,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    _write(folder / "generation_config.json", {"bos_token_id": begin, "eos_token_id": end, "pad_token_id": pad})
    _write(
        folder / "config.json",
        {
            **size.config(),
            "vocab_size": size.vocabulary,
            "max_position_embeddings": CONTEXT_TOKENS,
            "hidden_act": "silu",
            "rope_theta": 10000.0,
            "initializer_range": 0.02,
            "attention_bias": False,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "bos_token_id": begin,
            "eos_token_id": end,
            "pad_token_id": pad,
        },
    )


def train_tokenizer(vocabulary: int, seed: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer with exactly this many tokens.

    Raises:
        ValueError: when the made-up text does not hold enough different pieces for the vocabulary.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_made_up_text(vocabulary, random.Random(seed)), trainer)
    if tokenizer.get_vocab_size() != vocabulary:
        raise ValueError(f"the tokenizer has {tokenizer.get_vocab_size()} tokens instead of {vocabulary}")
    return tokenizer


def _made_up_text(words: int, chance: random.Random) -> list[str]:
    """Lines of invented words, each word twice, so that training merges whole words."""
    syllables = [first + second for first in "bdfghklmnprstvwz" for second in "aeiou"]
    lexicon = sorted({"".join(chance.choices(syllables, k=chance.randint(2, 4))) for _ in range(words * 2)})
    return [" ".join(lexicon[start : start + 20]) for start in range(0, len(lexicon), 20)] * 2


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a model folder without weights.")
    parser.add_argument("--size", choices=SIZES, default="mid")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tokenizer's made-up training text")
    parser.add_argument("-o", "--output", type=Path, help="folder to write (default: .cache/models/SIZE)")
    arguments = parser.parse_args()
    folder = arguments.output or Path(".cache/models") / arguments.size
    make_model(folder, SIZES[arguments.size], arguments.seed)
    print(folder)


if __name__ == "__main__":
    main()
