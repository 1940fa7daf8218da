"""Lets the unmodified SGLang wheel import and serve on a machine without a GPU.

The published wheel imports `triton`, `torchvision` and `sgl_kernel` unconditionally. The first and the last have no
build for a plain CPU, and torchvision's published build wants the CUDA build of torch. A Llama-like model served with
`--device cpu --attention-backend torch_native` calls nothing in them. So their names are enough: this package answers
those imports with stand-ins, and a stand-in that is really called fails and says its name.

A `.pth` file in the environment imports this package at every interpreter start, because SGLang starts its scheduler
and detokenizer as fresh interpreters. Without `SGLANG_USE_CPU_ENGINE=1`, SGLang's own switch, nothing is changed.
"""

import os

if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
    from sglang_cpu.stand_in import install

    install()
