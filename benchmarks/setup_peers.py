"""Set up the load clients that ours is compared with, in an environment of their own: `.engines/peers`.

    python -m benchmarks.setup_peers

Holds aiperf and guidellm; `vllm bench serve` and `sglang.bench_serving` come with the engines' own environments
(`tools/engines/setup.py`). Repeating the command is harmless: what is there is left alone.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from tools.engines.setup import CHECKOUT, install_torch

PINS = ("aiperf==0.13.0", "guidellm==0.8.1")
ENVIRONMENT = CHECKOUT / ".engines" / "peers"


def main() -> None:
    """Make the environment, unless it was made from the same pins."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ENVIRONMENT, help="folder of the environment")
    into = parser.parse_args().into
    stamp, wanted = into / ".made-from", "\n".join(PINS)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        print(f"{into} is up to date")
        return
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise SystemExit("uv is needed: pip install uv")
    python = into / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(into)], check=True)
    install_torch(uv, python)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *PINS], check=True)
    for program in ("aiperf", "guidellm"):
        subprocess.run([str(into / "bin" / program), "--help"], check=True, stdout=subprocess.DEVNULL)
    stamp.write_text(wanted, encoding="utf-8")
    print(f"{into} is ready")


if __name__ == "__main__":
    main()
