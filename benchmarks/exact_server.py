"""A server that keeps an exact schedule and logs how late it was.

    python -m benchmarks.exact_server --port 8000 --ttft-ms 50 --itl-ms 10 --tokens 128

OpenAI-compatible streaming completions and chat on 127.0.0.1. Token k of a request is due `ttft + k · itl` after the
request was read. `GET /log` gives, and `DELETE /log` forgets, one JSON line per finished request: `read_at` (monotonic
seconds), `unread_ms`, the longest that the request can have lain unread, and `stamps_ms`, when each token was written,
in ms after `read_at`. A client's error is its report minus this log.

One thread around epoll, because event loops round timers to milliseconds: `select` waits to the microsecond. What
arrives is stamped first and looked at when no token is due, and every token is one prepared write. The log is spelled
out when it is asked for: where all requests end together, whatever the end of one costs delays the end of the next.
"""

import argparse
import gc
import heapq
import json
import select
import signal
import socket
import time
from collections import deque
from itertools import count

READ_SIZE = 1 << 16
WRITES_BETWEEN_READS = 8  # a request that arrives while many tokens are due is still stamped within some 0.1 ms


def chunked(payload: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def event(message: object) -> bytes:
    """One server-sent event as one HTTP chunk."""
    return chunked(b"data: " + json.dumps(message, separators=(",", ":")).encode() + b"\n\n")


def answer(body: bytes, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """A complete HTTP answer."""
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_COMMON = {"id": "cmpl-0123456789abcdef", "created": 1, "model": "exact"}


def token_event(*, chat: bool, last: bool) -> bytes:
    """The event of one token."""
    reason = "length" if last else None
    if chat:
        choice = {"index": 0, "delta": {"content": " tok"}, "finish_reason": reason}
        return event(_COMMON | {"object": "chat.completion.chunk", "choices": [choice]})
    choice = {"index": 0, "text": " tok", "logprobs": None, "finish_reason": reason}
    return event(_COMMON | {"object": "text_completion", "choices": [choice]})


TOKENS = {chat: (token_event(chat=chat, last=False), token_event(chat=chat, last=True)) for chat in (False, True)}


Entry = tuple[float, float, list[float]]
"""A finished request: when it was read, how long it can have lain unread, when its tokens were written; seconds."""


def log_line(entry: Entry) -> str:
    """A finished request in the log."""
    read_at, unread, stamps = entry
    written = [round((at - read_at) * 1000, 4) for at in stamps]
    return json.dumps({"read_at": read_at, "unread_ms": round(unread * 1000, 4), "stamps_ms": written})


class Peer:
    """A connection and the answer it is being given."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = b""
        self.read_at = 0.0
        self.unread = 0.0
        self.total = 0
        self.chat = False
        self.closing = b""
        self.stamps: list[float] = []

    def request(self) -> tuple[bytes, bytes, bytes] | None:
        """Method, path and body of the next complete request."""
        head, mark, rest = self.received.partition(b"\r\n\r\n")
        if not mark:
            return None
        lines = head.split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line[:15].lower() == b"content-length:"), 0)
        if len(rest) < length:
            return None
        self.received = rest[length:]
        method, path, _ = lines[0].split(b" ", 2)
        return method, path.split(b"?")[0], rest[:length]


class ExactServer:
    """The schedule, the connections and the log."""

    def __init__(self, port: int, ttft_s: float, itl_s: float, tokens: int) -> None:
        self.ttft_s, self.itl_s, self.tokens = ttft_s, itl_s, tokens
        self.log: list[Entry] = []
        self.looked_at = 0.0
        self.listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.epoll = select.epoll()
        self.epoll.register(self.listener, select.EPOLLIN)
        self.peers: dict[int, Peer] = {}
        self.due: list[tuple[float, int, Peer]] = []
        self.order = count()
        self.fresh: deque[Peer] = deque()

    def run(self) -> None:
        """Serve until interrupted."""
        while True:
            before = self.wait()
            self.looked_at = time.perf_counter()
            for descriptor, _ in self.epoll.poll(0):
                if descriptor == self.listener.fileno():
                    self.accept()
                else:
                    self.read(self.peers[descriptor], before)
            now = time.perf_counter()
            for _ in range(WRITES_BETWEEN_READS):
                if not self.due or self.due[0][0] > now:
                    break
                at, _, peer = heapq.heappop(self.due)
                self.write_token(peer, at)
            else:
                continue
            if self.fresh:
                self.handle(self.fresh.popleft())

    def wait(self) -> float:
        """Sleep until something arrives or a token is due; what is found then arrived after the returned instant."""
        if self.fresh:
            return self.looked_at
        left = self.due[0][0] - time.perf_counter() if self.due else None
        if left is not None and left <= 0:
            return self.looked_at
        select.select([self.epoll.fileno()], [], [], left)
        return time.perf_counter()

    def accept(self) -> None:
        """Take every waiting connection."""
        while True:
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.peers[sock.fileno()] = Peer(sock)
            self.epoll.register(sock, select.EPOLLIN)

    def read(self, peer: Peer, before: float) -> None:
        """Take what has arrived since then and stamp it; looked at later."""
        at = time.perf_counter()
        try:
            data = peer.sock.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(peer)
            return
        peer.received += data
        peer.read_at, peer.unread = at, at - before
        self.fresh.append(peer)

    def drop(self, peer: Peer) -> None:
        """Forget a connection; its answer, if any, ends here."""
        self.peers.pop(peer.sock.fileno(), None)
        self.epoll.unregister(peer.sock)
        peer.sock.close()
        peer.total = 0

    def handle(self, peer: Peer) -> None:
        """Begin to answer a complete request."""
        request = peer.request()
        if request is None:
            return
        method, path, body = request
        if method == b"POST" and path.endswith(b"/completions"):
            self.begin(peer, json.loads(body), chat=b"chat" in path)
        elif path == b"/log":
            peer.sock.setblocking(True)
            peer.sock.sendall(answer("\n".join(map(log_line, self.log)).encode(), kind="application/jsonl"))
            peer.sock.setblocking(False)
            if method == b"DELETE":
                self.log.clear()
        elif path.endswith(b"/models"):
            peer.sock.send(
                answer(json.dumps({"object": "list", "data": [{"id": "exact", "object": "model"}]}).encode())
            )
        elif path in (b"/health", b"/"):
            peer.sock.send(answer(b"{}"))
        else:
            peer.sock.send(answer(b'{"error":{"message":"no such page"}}', "404 Not Found"))

    def begin(self, peer: Peer, body: dict[str, object], *, chat: bool) -> None:
        """Schedule an answer."""
        asked = body.get("max_tokens") or body.get("max_completion_tokens") or self.tokens
        total = min(int(str(asked)), self.tokens)
        prompt = body.get("prompt") or ""
        counted = len(prompt) if isinstance(prompt, list) else len(str(prompt).split())
        usage = {"prompt_tokens": counted, "completion_tokens": total, "total_tokens": counted + total}
        if not body.get("stream"):
            text = " tok" * total
            choice = {"index": 0, "finish_reason": "length"} | (
                {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            )
            peer.sock.send(answer(json.dumps(_COMMON | {"choices": [choice], "usage": usage}).encode()))
            return
        peer.chat, peer.total, peer.stamps = chat, total, []
        tail = event(_COMMON | {"choices": [], "usage": usage}) if body.get("stream_options") else b""
        peer.closing = tail + chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        heapq.heappush(self.due, (peer.read_at + self.ttft_s, next(self.order), peer))

    def write_token(self, peer: Peer, due: float) -> None:
        """Write one token, stamp it, and schedule the next; the last one takes the end of the answer along."""
        if not peer.total:
            return
        number = len(peer.stamps)
        last = number + 1 == peer.total
        data = TOKENS[peer.chat][last]
        if not number:
            data = STREAM_HEAD + data
        if last:
            data += peer.closing
        else:
            heapq.heappush(self.due, (due + self.itl_s, next(self.order), peer))
        stamp = time.perf_counter()
        try:
            peer.sock.send(data)
        except OSError:
            self.drop(peer)
            return
        peer.stamps.append(stamp)
        if last:
            self.log.append((peer.read_at, peer.unread, peer.stamps))
            peer.total = 0


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--ttft-ms", type=float, default=50)
    parser.add_argument("--itl-ms", type=float, default=10)
    parser.add_argument("--tokens", type=int, default=128, help="most tokens per answer")
    chosen = parser.parse_args()
    server = ExactServer(chosen.port, chosen.ttft_ms / 1000, chosen.itl_ms / 1000, chosen.tokens)

    def leave(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, leave)
    print(json.dumps({"port": server.port}), flush=True)
    gc.disable()  # a collection would delay every token that is due meanwhile; nothing here refers in circles
    server.run()


if __name__ == "__main__":
    main()
