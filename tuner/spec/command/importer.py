"""A text → the launch command in it, whatever it is wrapped in; or why there is none to be had."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner import yamlfile
from tuner.domain.catalogue import FlagCatalogue
from tuner.errors import SpecError
from tuner.spec.command import configs
from tuner.spec.command.arguments import is_flag, parse_arguments
from tuner.spec.command.around import ENGINES, Around, engine_of_image, mentions
from tuner.spec.command.charts import first_env, named_model
from tuner.spec.command.containers import read_container_run
from tuner.spec.command.launchers import Launcher, find_launcher
from tuner.spec.command.lexer import ShellSyntaxError
from tuner.spec.command.manifests import Container, find_containers
from tuner.spec.command.model import FlagText, LaunchCommand
from tuner.spec.command.shell import Script, SimpleCommand, read_script
from tuner.spec.command.text import clean
from tuner.spec.command.units import is_unit, read_unit

_PARAMETERS = "\0parameters"
"""Stands for `"$@"` while a wrapper script is read."""
_MODEL_FLAGS = ("--model", "--model-path", "--model-tag")
_ACTIVATES = frozenset({"source", ".", "conda", "mamba", "micromamba", "module", "pyenv"})


def import_command(
    text: str, *, engine: str | None = None, catalogue: FlagCatalogue | None = None, folder: Path | None = None
) -> LaunchCommand:
    """Understand a launch command: shell text, docker run, a compose, Kubernetes or systemd file, or a flag file.

    Args:
        text: as people paste it, with prompts, comments, continued lines and exports.
        engine: the engine it is meant for, where the text does not say.
        catalogue: tells which flags take values; without it the importer goes by what the words look like.
        folder: where relative `--config FILE`s are looked up; None does not follow them.

    Returns:
        The command; when it cannot be imported, `refusal` says why and the other fields hold what was seen.
    """
    reader = _Importer(engine, catalogue, folder)
    try:
        return reader.read(text)
    except ShellSyntaxError as error:
        return LaunchCommand(refusal=f"this is no shell command: {error}")
    except RecursionError:
        return LaunchCommand(refusal="this is no launch command: it is nested too deeply")


class _Importer:
    def __init__(self, engine: str | None, catalogue: FlagCatalogue | None, folder: Path | None) -> None:
        self._engine, self._catalogue, self._folder = engine, catalogue, folder

    def read(self, text: str) -> LaunchCommand:
        if not text.strip():
            return LaunchCommand(refusal="the command is empty")
        if is_unit(text):
            return self._unit(text)
        data = _mapping(text)
        if data is not None:
            return self._mapping(data)
        cleaned, notes = clean(text)
        script = read_script(cleaned)
        return self._script(script, Around(env=dict(script.exported), notes=notes))

    # ------------------------------------------------------------ forms

    def _unit(self, text: str) -> LaunchCommand:
        around = Around(prefix="systemd")
        try:
            unit = read_unit(text)
        except ValueError as error:
            return around.refuse(f"the unit cannot be read: {error}")
        around.env, around.unresolved = unit.env, unit.unresolved
        if unit.folder:
            around.notes.append(f"the unit runs in {unit.folder}; relative paths count from there")
        if find_launcher(unit.words) is None:
            program = unit.words[0] if unit.words else "nothing"
            return around.refuse(f"ExecStart runs {program}, which hides the launch command: paste what it runs")
        found = self._argv(unit.words, around)
        if found is None:
            return around.refuse("ExecStart starts no server")
        if found.refusal and unit.files:
            return replace(
                found, refusal=f"{found.refusal}; they may stand in {', '.join(unit.files)}, which is not read"
            )
        return found

    def _mapping(self, data: Any) -> LaunchCommand:
        containers = find_containers(data)
        results = [found for one in containers if (found := self._container(one)) is not None]
        if results:
            return _choose(results)
        if configs.is_config(data, self._catalogue):
            return self._config(data)
        around = Around(env=first_env(data))
        engine = next((e for e in ENGINES if e in str(data).lower()), None)
        reason = (
            "holds no launch command: these look like values that a chart makes flags of; "
            "run `helm template` and give the container it renders"
        )
        return replace(around.refuse(reason, engine=engine, launcher="helm chart"), model=named_model(data))

    def _config(self, data: Mapping[str, Any]) -> LaunchCommand:
        engine = self._engine or configs.engine_of_keys(map(str, data))
        around = Around()
        if engine is None:
            return around.refuse("nothing tells whether these are flags of SGLang or of vLLM")
        launcher = "vllm serve MODEL --config FILE" if engine == "vllm" else "sglang.launch_server --config FILE"
        flags = configs.flags_of_config(data)
        return around.command(engine=engine, launcher=launcher, flags=flags, model=_model_of(flags, ())[0])

    def _container(self, container: Container) -> LaunchCommand | None:
        kind = "compose" if container.dialect == "compose" else "k8s"
        around = Around(
            prefix=f"{kind} entrypoint" if kind == "compose" and container.entrypoint else kind,
            env=container.env,
            passed=container.passed,
            secrets=container.secrets,
            unresolved=container.unresolved,
            container=dict(container.options),
            notes=container.notes,
            literal_gaps=True,
        )
        return self._inside_image(container.words, container.image, container.entrypoint, around)

    # ------------------------------------------------------------ words

    def _script(self, script: Script, around: Around) -> LaunchCommand:
        results = []
        for command in script.commands:
            here = around.copy()
            here.env.update(command.env)
            # Only gaps that this command depends on: others may be tests or messages of the script.
            needed = [*command.argv, *here.env.values()]
            here.unresolved += [gap for gap in script.unresolved if any(mentions(word, gap) for word in needed)]
            if command.conditional:
                here.notes.append("the command stands inside a condition or loop; it is taken as if that holds")
            found = self._argv(command.argv, here)
            if found is not None:
                results.append(found)
        for command in script.commands:
            if command.argv[0] in _ACTIVATES:
                line = shlex.join(command.argv)
                note = f"`{line}` is not repeated: give the engine's `command` the program of that environment"
                results = [replace(found, notes=(*found.notes, note)) for found in results]
        if results:
            return _choose(results)
        return around.refuse("no command here starts a server of SGLang or vLLM")

    def _argv(self, argv: Iterable[str], around: Around) -> LaunchCommand | None:
        """What a list of words starts; None when it has nothing to do with a server."""
        launcher = find_launcher(tuple(argv))
        if launcher is None:
            return None
        around.env.update(launcher.env)
        if launcher.kind == "server":
            return self._server(launcher, around)
        if launcher.kind == "container":
            return self._docker(launcher, around)
        if launcher.kind == "shell":
            return self._inner_script(launcher, around)
        if launcher.kind == "tool":
            return around.refuse(f"{launcher.name} is no server: give the command that starts one")
        reason = f"{launcher.name} is no engine that tuner launches"
        if "router" in launcher.name:
            reason = f"{launcher.name} is a router in front of workers: give the command of one worker"
        missing = [name for name in around.unresolved if any(mentions(word, name) for word in launcher.rest)]
        if missing:
            reason += f"; and these variables have no value here: {', '.join(missing)}"
        engine = next((e for e in ENGINES if launcher.name.startswith((e, e[:3]))), None)
        return around.refuse(reason, engine=engine, launcher=launcher.name)

    def _docker(self, launcher: Launcher, around: Around) -> LaunchCommand:
        run = read_container_run(launcher.rest)
        around.prefix = " ".join(part for part in (around.prefix, f"{launcher.name} {run.verb}") if part)
        around.env.update(run.env)
        around.passed += run.passed
        around.container.update(run.options)
        around.notes += run.notes
        found = self._inside_image(run.words, run.image, run.entrypoint, around)
        return found or around.refuse("the container starts no server that is known here")

    def _inside_image(
        self, words: tuple[str, ...], image: str | None, entrypoint: bool, around: Around
    ) -> LaunchCommand | None:
        if image is not None:
            around.container["image"] = (image,)
        if find_launcher(words) is not None:
            around.prefix += " …" if around.prefix.endswith((" run", " exec")) else ""
            found = self._argv(words, around)
            if found is not None or entrypoint:
                return found
        engine = engine_of_image(image or "")
        if engine is None or (not words and self._engine is None):
            return None
        script = next((word for word in words[:1] if word.endswith((".sh", ".py")) or "/bin/" in word), None)
        if entrypoint or script is not None:
            inner = words[0] if words else image
            return around.refuse(f"{inner} inside {image} hides the launch command: paste what it runs", engine=engine)
        # The image's own entry point starts the engine; the words are its arguments.
        shown = "IMAGE" if not words or is_flag(words[0]) else "IMAGE MODEL"
        return self._server(Launcher("server", shown, words, engine, words=shown), around)

    def _inner_script(self, launcher: Launcher, around: Around) -> LaunchCommand:
        text, parameters = (launcher.rest[0] if launcher.rest else ""), launcher.rest[1:]
        script = read_script(clean(text)[0], known=around.env, parameters=(_PARAMETERS,) if parameters else ())
        around.env.update(script.exported)
        taking = [one for one in script.commands if _PARAMETERS in one.argv and find_launcher(one.argv) is not None]
        if script.branches and taking:
            return self._wrapper(taking, parameters, around)
        for index, one in enumerate(script.commands):
            words = [w for word in one.argv for w in (parameters if word == _PARAMETERS else (word,))]
            script.commands[index] = replace(one, argv=tuple(words))
        found = self._script(script, around)
        if found.refusal is not None and found.refusal.startswith("no command here"):
            shown = text if len(text) < 80 else f"{text[:77]}…"
            name = f"{launcher.name} -c '{shown}'"
            return around.refuse(f"{name} hides the launch command: paste what it runs", launcher=name)
        return found

    def _wrapper(self, taking: list[SimpleCommand], parameters: tuple[str, ...], around: Around) -> LaunchCommand:
        """A script that decides at run time what to add to its parameters: they are the command, the rest is said."""
        launchers = [found for one in taking if (found := find_launcher(one.argv)) is not None]
        added: dict[str, None] = {}
        for launcher in launchers:
            own = parse_arguments([word for word in launcher.rest if word != _PARAMETERS], self._catalogue)
            for name, value in own.flags.items():
                words = () if isinstance(value, bool) else (value,) if isinstance(value, str) else value
                added[" ".join((name, *words))] = None
        around.prefix = f"{around.prefix}: bash -c wrapper →".removeprefix(": ")
        if added:
            around.notes.append(f"the wrapper script may add {', '.join(added)}; add what it does on your machine")
        server = replace(launchers[0], rest=parameters, words=f'{launchers[0].words} "$@"')
        return replace(self._server(server, around), runtime_flags=tuple(added))

    # ------------------------------------------------------------ the server

    def _server(self, launcher: Launcher, around: Around) -> LaunchCommand:
        name = launcher.words if around.prefix and launcher.words else launcher.name
        gaps = [gap for gap in dict.fromkeys(around.unresolved) if any(mentions(word, gap) for word in launcher.rest)]
        if gaps and not around.literal_gaps:
            reason = f"these variables have no value here: {', '.join(gaps)}"
            return around.refuse(reason, engine=launcher.engine, launcher=name)
        catalogue = self._catalogue if launcher.engine == self._engine else None
        arguments = parse_arguments(launcher.rest, catalogue)
        notes = list(arguments.notes)
        try:
            flags = self._with_config(arguments.flags, arguments.positional)
        except SpecError as error:
            return around.refuse(f"its --config file: {error}", engine=launcher.engine, launcher=name)
        if launcher.name == "vllm.entrypoints.api_server":
            name += " (old demo server)" if not around.prefix else ""
            notes.append("this demo server has no /v1 routes; trials use the OpenAI server with the same flags")
        if str(flags.get("--nnodes", flags.get("--nnode", "1"))) not in ("1", "True"):
            notes.append("it spans several nodes; tuner launches on one host")
        model, conflict = _model_of(flags, arguments.positional)
        return around.command(
            engine=launcher.engine,
            launcher=name,
            model=model,
            flags=flags,
            positional=arguments.positional,
            notes=[*notes, *conflict],
        )

    def _with_config(self, flags: Mapping[str, FlagText], positional: tuple[str, ...]) -> dict[str, FlagText]:
        """The flags with those of `--config FILE` before them, which the command line overrides."""
        named = flags.get("--config")
        if self._folder is None or not isinstance(named, str):
            return dict(flags)
        path = self._folder / named
        if not path.is_file():
            return dict(flags)
        data = yamlfile.parse(yamlfile.read_text(path), str(path), literal=True).data
        if not isinstance(data, dict):
            return dict(flags)
        rest = {name: value for name, value in flags.items() if name != "--config"}
        from_file = configs.flags_of_config(data)
        if positional:
            from_file = {name: value for name, value in from_file.items() if name not in _MODEL_FLAGS}
        return {**from_file, **rest}


def _choose(results: list[LaunchCommand]) -> LaunchCommand:
    """The one server among the commands of a text."""
    servers = [found for found in results if found.importable]
    if len(servers) > 1:
        names = "; ".join(f"{found.launcher} {found.model or ''}".strip() for found in servers)
        return replace(servers[0], refusal=f"{len(servers)} servers are started here ({names}): give one of them")
    return servers[0] if servers else results[0]


def _mapping(text: str) -> Any:
    """The YAML mapping that a text is, scalars as written; None when it is none."""
    try:
        documents = yamlfile.parse_all(textwrap.dedent(text), "command", literal=True)
    except SpecError:
        return None
    # A shell line with a colon in it parses as YAML too; its "key" then is more than a word.
    mappings = [one.data for one in documents if isinstance(one.data, dict | list)]
    sound = [m for m in mappings if all(_is_entry(part) for part in (m if isinstance(m, list) else [m]))]
    if not sound or len(sound) < len(mappings):
        return None
    return sound[0] if len(sound) == 1 else sound


def _is_entry(part: Any) -> bool:
    return isinstance(part, dict) and all(re.fullmatch(r"[\w.-]+", key) for key in part)


def _model_of(flags: Mapping[str, FlagText], positional: tuple[str, ...]) -> tuple[str | None, list[str]]:
    """The model, and what is to be said when two are named."""
    named = [value for flag in _MODEL_FLAGS if isinstance(value := flags.get(flag), str)]
    models = list(dict.fromkeys([*positional[:1], *named]))
    if len(models) > 1:
        note = f"two models are named: {models[0]} as a word, {models[1]} by flag; versions differ on which counts"
        return None, [note]
    return (models[0] if models else None), []
