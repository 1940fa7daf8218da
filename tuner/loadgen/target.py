"""Where requests go, and the bytes that carry them.

Nothing here reads the environment: proxies set there (`HTTP_PROXY`) never come between client and server.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tuner.errors import UsageError

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """A server.

    Attributes:
        scheme: `http` or `https`.
        host: name or address.
        port: TCP port.
        prefix: path in front of `/v1`, without a trailing slash.
        headers: extra request headers; a key given here is secret and is never printed or recorded.
    """

    scheme: str
    host: str
    port: int
    prefix: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, url: str, headers: tuple[tuple[str, str], ...] = ()) -> Target:
        """Read `http://host:port[/prefix][/v1]`.

        Raises:
            UsageError: when the URL cannot be one of a server.
        """
        text = url if "://" in url else f"http://{url}"
        parts = urlsplit(text)
        try:
            port = parts.port
        except ValueError:
            raise UsageError(f"{url}: the port is not a number from 0 to 65535") from None
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise UsageError(f"{url}: not a server address", hint="write it as http://HOST:PORT")
        if any("\r" in value or "\n" in value for pair in headers for value in pair):
            raise UsageError("a request header holds a line break")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.scheme, parts.hostname, port or _DEFAULT_PORTS[parts.scheme], prefix, headers)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """New TLS settings for an https server, which check certificates; the machine's are read anew each time."""
        return ssl.create_default_context() if self.scheme == "https" else None

    @property
    def authority(self) -> str:
        """`host:port` as it stands in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def post(self, path: str, body: bytes) -> bytes:
        """A complete HTTP/1.1 POST of a JSON body."""
        return self._head("POST", path, f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n") + body

    def get(self, path: str) -> bytes:
        """A complete HTTP/1.1 GET."""
        return self._head("GET", path, "")

    def _head(self, method: str, path: str, extra: str) -> bytes:
        own = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        return (
            f"{method} {self.prefix}{path} HTTP/1.1\r\nHost: {self.authority}\r\n"
            f"Accept: */*\r\nUser-Agent: tuner\r\n{own}{extra}\r\n"
        ).encode()
