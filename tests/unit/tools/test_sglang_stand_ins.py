"""The stand-ins that let SGLang run without its GPU packages: names answer, work does not."""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "tools" / "engines"

# Under names that no environment has, so that the test does not depend on what is installed.
INSTALL = "from sglang_cpu.stand_in import install; install(('absent_gpu', 'json'));"


def python(code: str, *, switch: str = "0") -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that finds the stand-ins."""
    env = {**os.environ, "PYTHONPATH": str(FOLDER), "SGLANG_USE_CPU_ENGINE": switch}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)


def output(code: str) -> str:
    done = python(INSTALL + code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_and_name_of_an_absent_package_can_be_imported() -> None:
    assert output(
        "from absent_gpu.language.extra import libdevice; import absent_gpu.ops as o; print(libdevice.exp)"
    ) == ("<stand-in for absent_gpu.language.extra.libdevice.exp>")


def test_decorators_return_the_function_with_and_without_options() -> None:
    code = (
        "import absent_gpu as g\n"
        "@g.autotune(configs=[g.Config({}, num_warps=4)], key=['n'])\n@g.jit\ndef f(): return 7\nprint(f())"
    )
    assert output(code) == "7"


def test_classes_can_be_subclassed_and_errors_raised() -> None:
    code = (
        "import absent_gpu as g\nclass A(g.Base): pass\nprint(A(size=3).size)\n"
        "try: raise g.CompilationError('x')\nexcept g.CompilationError: print('caught')"
    )
    assert output(code).split() == ["3", "caught"]


def test_work_fails_and_says_what_was_called() -> None:
    done = python(INSTALL + "import absent_gpu; absent_gpu.gemm(1, 2)")
    assert done.returncode == 1
    assert "absent_gpu.gemm was called, but it does not exist on this CPU" in done.stderr


def test_installed_packages_are_left_alone() -> None:
    assert output("import json; print(json.dumps([1]))") == "[1]"


def test_number_formats_are_told_apart_and_know_their_size() -> None:
    code = (
        "from sglang_cpu.scalar_type import scalar_types as s\n"
        "print(s.uint4b8.size_bits, s.float8_e4m3fn.size_bits, s.uint4.id != s.uint4b8.id, s.bfloat16.size_bits)"
    )
    assert output(code) == "4 8 True 16"


def test_nothing_happens_without_the_switch() -> None:
    code = "import sys; n = len(sys.meta_path); import sglang_cpu; print(len(sys.meta_path) - n)"
    assert python(code).stdout.strip() == "0"
    assert python(code, switch="1").stdout.strip() == "1"
