"""What the dashboard says while its database is away: a line in the browser and on the terminal, never a traceback."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_AWAY = "503 Service Unavailable"


def told_in_a_line(app: WSGIApplication, where: str) -> WSGIApplication:
    """The application; where it fails, the browser reads why, and the terminal once until it answers again.

    Args:
        app: of the dashboard.
        where: the database, without its password.
    """
    from tuner.cli.output import print_error

    reason = f"{where} cannot be read"
    is_told = False

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        nonlocal is_told
        trouble = io.StringIO()
        answer: list[Any] = []

        def hold(*begun: Any) -> Any:
            answer[:] = begun

        try:
            # The application notes in the environment what the server reads, so it is the same one.
            environ["wsgi.errors"] = trouble
            body = app(environ, hold)
        except Exception:  # noqa: BLE001 - a request that fails must not end the server, nor fill the terminal
            body, answer = [], []
            log_file = _log(environ, exception=True)
        else:
            if not answer[0].startswith("500"):
                is_told = False
                start_response(*answer)
                return body
            log_file = _log(environ, said=trouble.getvalue())
        if not is_told:
            print_error(f"{reason}, so the dashboard shows nothing", f"does it answer? The log says more: {log_file}")
        is_told = True
        return _say(environ, start_response, f"{reason} now; reload this page in a moment. The log of tuner says more.")

    return application


def _log(environ: WSGIEnvironment, *, said: str = "", exception: bool = False) -> str:
    """Write the trouble to the log, and say where that is."""
    import structlog

    from tuner.cli.logs import log_file

    structlog.get_logger("tuner").error("dashboard", page=quote(environ["PATH_INFO"]), said=said, exc_info=exception)
    return str(log_file())


def _say(environ: WSGIEnvironment, start_response: StartResponse, reason: str) -> Iterable[bytes]:
    """The dashboard's own pages show the `reason` of a document; people read the line."""
    is_document = environ["PATH_INFO"].startswith("/api/")
    body = (json.dumps({"reason": reason}) if is_document else f"{reason}\n").encode()
    kind = "application/json" if is_document else "text/plain; charset=utf-8"
    start_response(_AWAY, [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]
