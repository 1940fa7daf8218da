"""The program's own log: JSON lines in the user's state folder, secrets hidden, old files dropped."""

from __future__ import annotations

import logging
import logging.handlers
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from tuner.secrets import is_secret_name, redact

_MAX_BYTES, _KEPT_FILES = 5_000_000, 3


def log_file() -> Path:
    """`$TUNER_LOG`, or `tuner/tuner.log` in the user's state folder."""
    chosen = os.environ.get("TUNER_LOG")
    if chosen:
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tuner" / "tuner.log"


def _hide_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if is_secret_name(name):
            event[name] = "***"
        elif isinstance(value, str):
            event[name] = redact(value)
    return event


def configure_logging() -> None:
    """Send structlog and the standard library's warnings to the log file (none, if it cannot be written)."""
    import structlog

    # A log that fails later (full disk, a folder that may not be written) must not print tracebacks into the view.
    logging.raiseExceptions = False
    handler: logging.Handler
    try:
        log_file().parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            log_file(), maxBytes=_MAX_BYTES, backupCount=_KEPT_FILES, encoding="utf-8", delay=True
        )
    except (OSError, RuntimeError):  # RuntimeError: this user has no home folder
        handler = logging.NullHandler()
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _hide_secrets,
    ]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processor=structlog.processors.JSONRenderer())
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
