"""Addresses and the bytes of a request."""

from __future__ import annotations

import pytest

from tuner.errors import UsageError
from tuner.loadgen.target import Target


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", ("http", "127.0.0.1", 8000, "")),
        ("127.0.0.1:8000/", ("http", "127.0.0.1", 8000, "")),
        ("http://host/v1", ("http", "host", 80, "")),
        ("https://host/llm/v1/", ("https", "host", 443, "/llm")),
        ("http://[::1]:9", ("http", "::1", 9, "")),
    ],
)
def test_addresses_people_write(url: str, expected: tuple[str, str, int, str]) -> None:
    target = Target.parse(url)
    assert (target.scheme, target.host, target.port, target.prefix) == expected


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:99999", "http://host:x"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError):
        Target.parse(url)


def test_a_post_is_complete_and_a_key_is_sent_but_never_shown() -> None:
    target = Target.parse("http://h:1/x", (("Authorization", "Bearer k3y"),))
    request = target.post("/v1/completions", b'{"a":1}')
    head, body = request.split(b"\r\n\r\n")
    assert head.startswith(b"POST /x/v1/completions HTTP/1.1\r\nHost: h:1\r\n")
    assert b"Content-Length: 7" in head
    assert b"Authorization: Bearer k3y" in head
    assert body == b'{"a":1}'
    assert "k3y" not in repr(target)


def test_a_header_cannot_smuggle_another_one() -> None:
    with pytest.raises(UsageError, match="line break"):
        Target.parse("http://h", (("A", "b\r\nEvil: 1"),))
