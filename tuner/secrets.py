"""Keep secrets out of everything that is stored, logged, exported or shown."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"
_NAME = re.compile(r"(?i)(token|secret|passw|api[_-]?key|credential|authorization|private[_-]?key)")
_URL_PASSWORD = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@")
_ASSIGNMENT = re.compile(
    r"(?i)(?P<head>\b[A-Z0-9_-]*(?:token|secret|passw(?:or)?d|api[_-]?key|credential)[A-Z0-9_-]*\s*[=:]\s*)"
    r"(?P<quote>['\"]?)(?P<value>[^\s'\",}]+)"
)
_BEARER = re.compile(r"(?i)(?P<head>\bbearer\s+)[A-Za-z0-9._~+/=-]+")
_KNOWN = re.compile(r"\b(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|nvapi-[A-Za-z0-9_-]{16,})")
# Names that look secret and are not: token counts and tokenizer settings are what this program is about.
_HARMLESS = re.compile(r"(?i)(tokens\b|tokeniz|token_?(num|count|limit|budget|interval|threshold|ids?)|detoken)")


def is_secret_name(name: str) -> bool:
    """Whether a variable or flag of this name holds a secret (`HF_TOKEN`, `--api-key`)."""
    return bool(_NAME.search(name)) and not _HARMLESS.search(name)


def redact(text: str) -> str:
    """Replace passwords in URLs, secret assignments, bearer tokens and well-known key formats by `***`."""
    text = _URL_PASSWORD.sub(rf"\g<head>:{HIDDEN}@", text)
    text = _BEARER.sub(rf"\g<head>{HIDDEN}", text)
    text = _KNOWN.sub(HIDDEN, text)

    def hide(match: re.Match[str]) -> str:
        if not is_secret_name(match["head"]):
            return match[0]
        return f"{match['head']}{match['quote']}{HIDDEN}"

    return _ASSIGNMENT.sub(hide, text)


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """A copy of an environment with the values of secret names hidden and the others redacted."""
    return {name: HIDDEN if is_secret_name(name) else redact(value) for name, value in env.items()}
