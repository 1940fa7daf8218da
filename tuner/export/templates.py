"""Templates only format: what they get is built, and quoted, in Python. An engine's own template wins."""

from __future__ import annotations

from functools import cache

import jinja2

from tuner.domain.values import spell
from tuner.resources import launchers_dir


def render(template: str, engine: str, **values: object) -> str:
    """Fill `launchers/<engine>/<template>`, or `launchers/common/<template>` where the engine has none.

    Raises:
        jinja2.UndefinedError: the template asks for a value that it does not get.
    """
    return _environment(engine).get_template(template).render(**values)


def render_html(template: str, **values: object) -> str:
    """Fill `launchers/common/<template>`; every value is escaped unless it is `markupsafe.Markup`.

    Raises:
        jinja2.UndefinedError: the template asks for a value that it does not get.
    """
    return _environment("common", escape=True).get_template(template).render(**values)


@cache
def _environment(engine: str, *, escape: bool = False) -> jinja2.Environment:
    folders = [launchers_dir() / engine, launchers_dir() / "common"]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        autoescape=escape,  # noqa: S701 - only the report is HTML; other values are quoted before they come here
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["one_line"] = one_line
    environment.filters["spelled"] = spell
    environment.filters["unbroken"] = _unbroken
    return environment


def _unbroken(text: str) -> str:
    """The text with a blank before `%` where no line may end."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def one_line(text: object) -> str:
    """The text without line breaks and control characters, so that it cannot end the comment that it stands in."""
    return "".join(char if char.isprintable() else " " for char in str(text))
