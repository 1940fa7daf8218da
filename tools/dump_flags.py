"""Write down what flags an engine takes, by asking its own argument parser.

Run it with the interpreter of the engine's environment:

    .engines/vllm/bin/python tools/dump_flags.py vllm -o launchers/vllm/flags/0.32.0.json
    SGLANG_USE_CPU_ENGINE=1 .engines/sglang/bin/python tools/dump_flags.py sglang -o launchers/sglang/flags/0.5.23.json

`--overlay DIR` asks another version than the installed one: DIR holds that version's Python files (the wheel unpacked,
and what it imports in other versions than the installed), which then come first. Building a parser needs no GPU.

The kind and type of a flag are found by trying its converter, not by its name: engines wrap converters in closures.
What the keys of vLLM's JSON flags take is read from the classes that it makes of them (`config_keys.py`).
What no parser says, i.e. which flags are gone or have no effect, comes from `flag_history.toml` beside this file.
"""

import argparse
import enum
import importlib.metadata
import json
import math
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from config_keys import keys_of, vllm_configs

HISTORY = Path(__file__).with_name("flag_history.toml")

YOUNG_ALIASES = frozenset({"--device-memory-utilization"})  # vLLM 0.32; every version takes --gpu-memory-utilization


def sglang_parser() -> argparse.ArgumentParser:
    """The parser of `python -m sglang.launch_server`."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser


def vllm_parser() -> argparse.ArgumentParser:
    """The parser of `vllm serve`."""
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    # An overlay of a CUDA build finds no GPU and would refuse to build defaults for an unknown platform.
    vllm.platforms.current_platform = CpuPlatform()

    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return ServeSubcommand().subparser_init(FlexibleArgumentParser().add_subparsers())


def key_tables(engine: str) -> dict[str, dict[str, Any]]:
    """Name of a flag's value in the parser → what its keys take, of the engines whose classes tell."""
    configs = vllm_configs() if engine == "vllm" else {}
    return {name: keys_of(config, apart=tuple(configs.values())) for name, config in configs.items()}


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {"sglang": sglang_parser, "vllm": vllm_parser}


def describe(action: argparse.Action) -> dict[str, Any]:
    """One flag in the catalogue's form."""
    spellings = positive_spellings(action)
    type_ = None if action.nargs == 0 else value_type(action.type)
    flag: dict[str, Any] = {
        "name": spellings[0],
        "aliases": spellings[1:],
        "kind": kind_of(action, type_),
        "type": type_,
        "choices": None if action.choices is None or action.nargs == 0 else spelled_choices(action.choices),
        "default": plain(action.default),
    }
    if off := [spelling for spelling in action.option_strings if spelling not in spellings and not is_no(spelling)]:
        flag["off"] = off
    return flag


def positive_spellings(action: argparse.Action) -> list[str]:
    """Spellings that give or turn on a flag, longest first; a name that all versions take comes before a newer one."""
    negative = getattr(action, "negative_option_strings", frozenset())
    toggle = isinstance(action, argparse.BooleanOptionalAction)
    spellings = [s for s in action.option_strings if s not in negative and not (toggle and is_no(s))]
    return sorted(spellings, key=lambda spelling: (spelling in YOUNG_ALIASES, -len(spelling)))


def is_no(spelling: str) -> bool:
    """Whether it is the `--no-` form of a toggle."""
    return spelling.startswith("--no-")


def kind_of(action: argparse.Action, type_: str | None) -> str:
    """How a flag takes its value: toggle, switch, list, json or value."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return "toggle"
    if action.nargs == 0:
        return "switch"
    if action.nargs in ("+", "*") or isinstance(action.nargs, int):
        return "list"
    return "json" if type_ == "json" else "value"


def value_type(convert: Callable[[str], Any] | None) -> str | None:
    """What a converter makes of a word: int, float, str or json; None when it takes numbers and certain words."""
    if convert is None:
        return "str"
    for example in ("{}", "[]"):
        value = attempt(convert, example)
        if value is not None and not isinstance(value, str | int | float):
            return "json"
    number = attempt(convert, "17")
    if isinstance(number, int) and not isinstance(number, bool):
        return None if attempt(convert, "auto") is not None else "int"
    return "float" if isinstance(number, float) else "str"


def attempt(convert: Callable[[str], Any], word: str) -> Any:
    """The converted word, or None when the converter refuses it (each in its own way)."""
    try:
        return convert(word)
    except (ValueError, TypeError, AssertionError, argparse.ArgumentTypeError):
        return None


def spelled_choices(choices: Iterable[Any]) -> list[Any]:
    """The choices in the parser's order; sorted where the parser keeps a set."""
    values = [plain(choice) for choice in choices if choice is not None]
    return sorted(values, key=str) if isinstance(choices, set | frozenset) else values


def plain(value: Any) -> Any:
    """A default as JSON; null where the parser keeps something that JSON cannot say."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is argparse.SUPPRESS or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str) else None


def catalogue(
    engine: str, parser: argparse.ArgumentParser, version: str, source: str, keys: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """The whole catalogue of one version; `keys` as `key_tables` gives them."""
    actions = [action for action in parser._actions if action.option_strings and action.dest != "help"]
    flags = sorted((describe(action) | told_keys(action, keys) for action in actions), key=lambda flag: flag["name"])
    known = {spelling for action in actions for spelling in action.option_strings}
    history = tomllib.loads(HISTORY.read_text(encoding="utf-8"))[engine]
    return {
        "engine": engine,
        "version": version,
        "source": source,
        "flags": flags,
        "removed": {flag: advice for flag, advice in history["removed"].items() if flag not in known},
        "dead": {flag: reason for flag, reason in history["dead"].items() if flag in known},
    }


def told_keys(action: argparse.Action, keys: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What is known of the keys of a JSON flag."""
    return {"keys": keys[action.dest]} if action.dest in keys and value_type(action.type) == "json" else {}


def to_text(content: dict[str, Any]) -> str:
    """JSON with one flag a line, so that a new version shows as a readable difference."""
    lines = []
    for key, value in content.items():
        if key == "flags":
            rows = ",\n    ".join(json.dumps(flag, ensure_ascii=False) for flag in value)
            lines.append(f'"flags": [\n    {rows}\n  ]')
        else:
            indented = json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n  ")
            lines.append(f"{json.dumps(key)}: {indented}")
    return "{\n  " + ",\n  ".join(lines) + "\n}\n"


def main() -> None:
    options = argparse.ArgumentParser(description="Dump an engine's own argument parser as a flag catalogue.")
    options.add_argument("engine", choices=PARSERS)
    options.add_argument("--overlay", type=Path, help="unpacked wheel of another version, used first")
    options.add_argument("-o", "--output", type=Path, help="file to write (default: standard output)")
    arguments = options.parse_args()
    if arguments.overlay:
        sys.path.insert(0, str(arguments.overlay.resolve()))
    version = importlib.metadata.version(arguments.engine).split("+")[0]
    how = "unpacked over another version's environment" if arguments.overlay else "installed for a CPU"
    source = f"argument parser of {arguments.engine} {version}, {how}"
    parser = PARSERS[arguments.engine]()
    text = to_text(catalogue(arguments.engine, parser, version, source, key_tables(arguments.engine)))
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
