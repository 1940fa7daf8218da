"""A simulated engine: a real OpenAI-compatible server process whose speed follows a model read from YAML.

It is started, watched, measured and torn down by the very path that the real engines take, so that the whole program
can be tried, tested and benchmarked without a GPU, on ground where the truth is known. Nothing it says is a measurement
of hardware, and everything it says is labelled `simulated`. `docs/simulated.md` is the guide.

    python -m tuner.engines.simulated --model sim/kimi --port 8000 --time-scale 20

Modules, in the order in which a launch meets them:
    flags      command line, and the catalogue that is generated from it
    settings   command line + environment → the settings that really act, and why others do not
    nccl       what the NCCL variables mean
    model      the performance model: speeds, memory, regions in which a launch fails
    noise      what makes two launches, and two moments of one, differ
    faults     `--fault`: ways to misbehave on purpose; `incidents`, `misbehave` and `strays` carry them out
    journal    the log in either engine's dress; `crash_texts` are last words, `servinglog` progress
    phases     the log and the waits of a launch before it serves
    scheduler  batches, queue, KV room, and the absolute schedule of every token
    tokens     answers that depend on the prompt only
    wire       HTTP; `api` the routes, `completions` and `replies` the OpenAI documents, `info` what acts
    server     puts it together
    reference  a tool: the best points of a model

Start-up is part of every simulated trial, so nothing heavy (pydantic, numpy, typer) is imported here.
"""
