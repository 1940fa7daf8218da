"""`tuner dashboard`: the Optuna dashboard on the study database."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import StorageOption
from tuner.cli.output import console
from tuner.cli.wording import SIMULATED
from tuner.errors import StudyError, UsageError, UserError

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer
    from wsgiref.types import WSGIApplication

    from tuner.domain.study import StudyRecord
    from tuner.search.board_files import Shown
    from tuner.store import Store


def dashboard(
    storage: StorageOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8080,
) -> None:
    """Show studies in the browser: Pareto front, all metrics, notes, logs, the report. Ctrl-C ends it.

    The database URL stays inside this process: no password is on a command line or in a log.
    """
    from tuner.cli.dashboard_troubles import told_in_a_line
    from tuner.cli.logs import configure_logging
    from tuner.search.board import dashboard_app
    from tuner.store import default_url, driver_url, open_store

    if not host:
        raise UsageError("--host is empty", hint="give an address of this machine: 127.0.0.1")
    if not _is_loopback(host):
        console().print(
            f"warning: {host} can be reached from other machines, and the dashboard lets everybody delete studies",
            style="yellow",
        )
    configure_logging()
    # A page that waits is no better than one that says why there is nothing to see.
    with open_store(storage, create=False, patience_s=0) as store:
        app = dashboard_app(
            driver_url(storage or default_url()),
            facts=lambda name: _facts(store, name),
            shown_name=lambda name: _shown_name(store, name),
            shown=lambda name: _shown(store, name),
        )
        with _listen(told_in_a_line(app, store.url), host, port) as server:
            address = f"[{host}]" if ":" in host else host
            try:
                console().print(f"dashboard of {store.url}: http://{address}:{server.server_port}/")
                server.serve_forever()
            except KeyboardInterrupt:
                console().print("dashboard ended")


def _record(store: Store, name: str) -> StudyRecord | None:
    """The study; None for a study of Optuna's that is not tuner's."""
    try:
        return store.study(name)
    except StudyError:
        return None


def _shown_name(store: Store, name: str) -> str:
    """The name in lists and titles, which says when its numbers are no measurements."""
    record = _record(store, name)
    return f"{name} ({SIMULATED})" if record is not None and record.simulated else name


def _shown(store: Store, name: str) -> Shown:
    """Notes and files beside its trials."""
    from tuner.cli.dashboard_view import shown_of
    from tuner.search.board_files import Shown

    record = _record(store, name)
    return Shown() if record is None else shown_of(store, record)


def _facts(store: Store, name: str) -> dict[str, str]:
    """What the page of a study says about it."""
    record = _record(store, name)
    if record is None:
        return {}
    return {
        "simulated": "yes: a performance model's numbers, not a measurement" if record.simulated else "no",
        "model": record.space.model,
        "engines": ", ".join(record.space.engines),
        "space": f"{record.space.name} ({record.space_hash[:12]})",
        "state": f"{record.state.value}: {record.reason}" if record.reason else record.state.value,
        "tuner": record.tuner_version,
    }


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(app: WSGIApplication, host: str, port: int) -> WSGIServer:
    """A server with a thread per request, which writes no request log.

    Raises:
        UserError: the address is in use, not this machine's, or not allowed.
    """
    import socket
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    class Silent(WSGIRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    try:
        return make_server(host, port, app, server_class=Server, handler_class=Silent)
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="give another --port or --host"
        ) from error
