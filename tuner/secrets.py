"""Keep secrets out of everything that is stored, logged, exported or shown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "***"
_ALWAYS = r"secret|passw(?:or)?d|passphrase|api[_-]?key|credential|authorization|private[_-]?key"
# A token is a secret when it is the last word of a name (`HF_TOKEN`, `--hf-token`, `AUTH_TOKEN_2`). Anywhere else, and
# in the plural, it is the unit that this program measures: `--long-prefill-token-threshold`, `NEW_TOKEN_RATIO`.
_NAME = re.compile(rf"(?i)(?:{_ALWAYS}|token(?:[_-]?\d+)?$)")
# A `secretKeyRef` of Kubernetes names the place of a secret, not the secret.
_HARMLESS = re.compile(
    r"(?i)(?:allow[_-]credentials$|secret(?:key)?ref$|secretname$"
    r"|(?:per|new|next|first|draft|bos|eos|pad|unk|stop|mask|image)[_-]?token$)"
)
# A password that nobody escaped may hold `/` and even `@`: up to the last `@` of the word, but no port and its path.
_URL_PASSWORD = re.compile(
    r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*):(?!\d{1,5}[/?#])[^\s@]+@(?:[^\s@'\",;()<>]*@)*"
)
_BEARER = re.compile(r"(?i)(?P<head>\bbearer\s+|\bauthorization['\"]?\s*[=:]\s*['\"]?[a-z]+[ \t]+)[A-Za-z0-9._~+/=-]+")
_KNOWN = re.compile(r"\b(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|nvapi-[A-Za-z0-9_-]{16,})")
# `NAME=value`, `name: value`, `"name": "value"`, `--name value`; the value in quotes or not, or several in brackets.
# Harmless are measurements and counts: "ITL per token: 12", and `#cached-token: 0` in SGLang's log.
_NOTHING = frozenset({"null", "none", "true", "false"})
_ASSIGNMENT = re.compile(
    rf"(?i)(?<!per )(?<![#A-Z0-9_-])(?P<name>[A-Z0-9_-]*(?:{_ALWAYS}|token)[A-Z0-9_-]*)"
    r"(?P<sep>['\"]?\s*[=:]\s*|(?<=[A-Z0-9])\s+)"
    r"(?P<value>(?P<quote>['\"])(?:(?!(?P=quote)).)+(?P=quote)|\[[^\]\n]*\]?|\([^)\n]*\)?"
    r"|\{[^}\n]*\}?|\$\{\w+\}|[^\s'\",}]+)"
)
# A variable of a shell or of a compose file says where the value comes from. Small letters may be a password's.
_REFERENCE = re.compile(r"\$(?:[A-Z_][A-Z0-9_]*|\{[A-Z_][A-Z0-9_]*\})")

# A switch, not the value of the flag before it: small letters after two dashes, up to three letters after one (`-tp`,
# `-O3`, `-cc.mode=1`). A key may begin with a dash, too.
_FLAG = re.compile(r"(?s)--?|--[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*(?:=.*)?|-[A-Za-z]{1,3}\d?(?:[.=].*)?")
_PUNCTUATION = ".,;:!?)]`"


def is_secret_name(name: str) -> bool:
    """Whether a variable or flag of this name holds a secret (`HF_TOKEN`, `--api-key`)."""
    return bool(_NAME.search(name)) and not _HARMLESS.search(name)


def is_flag(word: str) -> bool:
    """Whether a word after a flag is a flag itself, and not that flag's value."""
    return _FLAG.fullmatch(word) is not None


def redact(text: str) -> str:
    """Replace passwords in URLs, secret assignments, bearer tokens and well-known key formats by `***`."""
    text = _URL_PASSWORD.sub(rf"\g<head>:{HIDDEN}@", text)
    text = _BEARER.sub(rf"\g<head>{HIDDEN}", text)
    text = _KNOWN.sub(HIDDEN, text)
    return _ASSIGNMENT.sub(_hide_value, text)


def _hide_value(match: re.Match[str]) -> str:
    follows = match["sep"].isspace()
    if not is_secret_name(match["name"]) or (follows and not match["name"].startswith("--")):
        return match[0]
    if match["value"].lower() in _NOTHING:
        return match[0]
    if follows and is_flag(match["value"].rstrip(_PUNCTUATION)):
        return match[0]  # a switch; the next flag is not its value
    if "\n" in match["sep"] and match["value"].endswith(":"):
        return match[0]  # nothing; the next line's key is not its value
    quote = match["quote"] or ""
    if _REFERENCE.fullmatch(match["value"].strip(quote) if quote else match["value"]):
        return match[0]
    return f"{match['name']}{match['sep']}{quote}{HIDDEN}{quote}"


def redact_tree(value: object, name: str = "") -> object:
    """A copy of what JSON can hold: values of secret names are hidden, except null, true and false; texts are redacted.

    Args:
        value: any of it.
        name: under which it stands.
    """
    if value is None or isinstance(value, bool):
        return value
    if is_secret_name(name):
        return HIDDEN
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redact_tree(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redact_tree(one) for one in value]
    return value


def redact_arguments(argv: Sequence[str]) -> list[str]:
    """A copy of a command's words with the values of secret flags (`--api-key X`, `--api-key=X`) hidden."""
    shown = []
    follows_secret = False
    for argument in argv:
        flag, equals, _ = argument.partition("=")
        is_secret_flag = argument.startswith("-") and is_secret_name(flag)
        if follows_secret and not is_flag(argument):
            shown.append(HIDDEN)
        elif is_secret_flag and equals:
            shown.append(f"{flag}={HIDDEN}")
        else:
            shown.append(redact(argument))
        follows_secret = is_secret_flag and not equals
    return shown


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """A copy of an environment with the values of secret names hidden and the others redacted."""
    return {name: HIDDEN if is_secret_name(name) else redact(value) for name, value in env.items()}
