"""What counts as a secret, and what only sounds like one."""

from __future__ import annotations

import pytest

from tuner.engines.catalogue import load_catalogue
from tuner.engines.definition import engine_names
from tuner.secrets import is_flag, is_secret_name, redact, redact_arguments, redact_env, redact_tree

SECRET_NAMES = ["HF_TOKEN", "--hf-token", "token", "GITHUB_TOKEN", "AUTH_TOKEN_2", "--api-key", "--admin-api-key",
                "OPENAI_API_KEY", "apikey", "PGPASSWORD", "passwd", "--ssl-keyfile-password", "AWS_SECRET_ACCESS_KEY",
                "Authorization", "SSH_PRIVATE_KEY", "GOOGLE_CREDENTIALS"]  # fmt: skip
# Flags and variables of SGLang and vLLM.
SETTING_NAMES = ["--max-num-batched-tokens", "--long-prefill-token-threshold", "--tokenizer", "--tokenizer-mode",
                 "--speculative-token-map", "--kt-max-deferred-experts-per-token", "--max-total-tokens",
                 "--prefill-delayer-token-usage-low-watermark", "SGLANG_INIT_NEW_TOKEN_RATIO", "TOKENSPEED_MLA",
                 "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION", "--allow-credentials", "--ssl-keyfile",
                 "eos_token"]  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", SETTING_NAMES)
def test_settings_of_the_engines_are_no_secrets(name: str) -> None:
    assert not is_secret_name(name)
    assert redact(f"{name} 128") == f"{name} 128"
    assert redact(f"{name}=128") == f"{name}=128"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("HF_TOKEN=abc123", "HF_TOKEN=***"),
        ("export HF_TOKEN='abc 123'", "export HF_TOKEN='***'"),
        ("serve --api-key abc --port 1", "serve --api-key *** --port 1"),
        ("serve --api-key=abc --port 1", "serve --api-key=*** --port 1"),
        ("serve --api-key -abcDEF123 --port 1", "serve --api-key *** --port 1"),
        ("serve --api-key --abcDEF-123", "serve --api-key ***"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("password: abc", "password: ***"),
        ("postgresql://joe:abc@host/db", "postgresql://joe:***@host/db"),
        ("postgresql://joe:a/abc@host/db", "postgresql://joe:***@host/db"),
        ("postgresql://joe:a@abc/c@host:5432/db lost", "postgresql://joe:***@host:5432/db lost"),
        ('{"a": "redis://:abc@host", "b": "x@y"}', '{"a": "redis://:***@host", "b": "x@y"}'),
        ("Authorization: Bearer abc.def", "Authorization: *** ***"),
        ("curl -H 'bearer abc.def'", "curl -H 'bearer ***'"),
        ("using hf_abcdefghijklmnopqrst now", "using *** now"),
        ("non-default args: {'api_key': ['abc', 'abcd'], 'tp': 2}", "non-default args: {'api_key': ***, 'tp': 2}"),
        ("Namespace(api_key=('abc',), tp=2)", "Namespace(api_key=***, tp=2)"),
        ('{"credentials": {"a": "abc"}, "tp": 2}', '{"credentials": ***, "tp": 2}'),
        ("api_key:\n  abc", "api_key:\n  ***"),
        ("password=$abc", "password=***"),
        ("authorization=Basic abc,x=1", "authorization=*** ***,x=1"),
    ],
)
def test_secrets_in_texts_are_hidden(text: str, shown: str) -> None:
    assert "abc" not in redact(text)
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Decode batch, #running-req: 1, #token: 1234, #cached-token: 0, token usage: 0.00",
        "the server needs a token to start",
        "wrong password for user joe",
        "serve --disable-api-key --port 30000",
        "serve --enable-api-key -tp 8",
        "serve --use-auth-token -O3 -cc.mode=VLLM_COMPILE",
        "give --api-key, --hf-token; then --port.",
        "http://127.0.0.1:30000/health",
        "http://127.0.0.1:30000/a@b asked by c@d",
        "ITL per token: 12 ms",
        '{"hf_token": null, "api_key": None}',
        'HF_TOKEN=$HF_TOKEN API_KEY="${API_KEY}" vllm serve m --api-key $KEY',
        "valueFrom:\n  secretKeyRef:\n    name: hf\n    key: token",
        "secretKeyRef: {name: hf, key: token}",
        "environment:\n  HF_TOKEN:\n  NCCL_PROTO: LL",
    ],
)
def test_harmless_texts_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


def test_hiding_twice_changes_nothing_more() -> None:
    once = redact("HF_TOKEN=abc --api-key abc postgresql://u:abc@h/d Bearer abc")
    assert redact(once) == once


def test_an_environment_keeps_its_names() -> None:
    env = {"HF_TOKEN": "abc", "NCCL_PROTO": "LL", "PROXY": "http://joe:abc@proxy"}
    assert redact_env(env) == {"HF_TOKEN": "***", "NCCL_PROTO": "LL", "PROXY": "http://joe:***@proxy"}


def test_what_json_holds_stays_json_and_loses_its_secrets() -> None:
    given = {
        "hf_token": None,
        "api_key": "abc",
        "auth_token": 123,
        "nested": [{"password": ["abc"], "url": "http://joe:abc@proxy"}],
        "max_tokens": 7,
        "enable_secret": False,
    }
    assert redact_tree(given) == {
        "hf_token": None,
        "api_key": "***",
        "auth_token": "***",
        "nested": [{"password": "***", "url": "http://joe:***@proxy"}],
        "max_tokens": 7,
        "enable_secret": False,
    }


def test_a_secret_may_begin_with_a_dash_and_the_next_flag_is_none() -> None:
    words = ["serve", "--api-key", "-abcDEF123", "--use-auth-token", "--port", "1", "--hf-token", "-tp", "8"]
    assert redact_arguments(words) == ["serve", "--api-key", "***", *words[3:]]


def test_every_flag_of_every_engine_is_known_as_one() -> None:
    names = [name for engine in engine_names() for name in load_catalogue(engine).spellings]
    assert len(names) > 300
    assert [name for name in names if not is_flag(name)] == []
