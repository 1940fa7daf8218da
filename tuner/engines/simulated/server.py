"""Start, serve, stop."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import uvloop

from tuner.engines.simulated.api import Api
from tuner.engines.simulated.flags import build_parser
from tuner.engines.simulated.model import Speed
from tuner.engines.simulated.modelfile import SimModel, load_model
from tuner.engines.simulated.noise import Drift, LaunchNoise
from tuner.engines.simulated.scheduler import Scheduler
from tuner.engines.simulated.settings import Settings, resolve
from tuner.engines.simulated.wire import Connection


def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    model = load_model(args.sim_model)
    settings = resolve(args, os.environ, model)
    return uvloop.run(_serve(args, settings, model))


async def _serve(args: Any, settings: Settings, model: SimModel) -> int:
    speed = Speed(model, settings)
    seed = args.launch_seed if args.launch_seed is not None else secrets.randbits(48)
    drift = Drift(args.drift_percent / 100, args.drift_over, args.drift_since or time.time())
    noise = LaunchNoise(model.noise, seed=seed, scale=args.noise_scale, full_batch=model.workload.full_batch, drift=drift, wall_clock=time.time)
    scheduler = Scheduler(speed, noise, time_scale=args.time_scale, max_running=settings.max_running, prefill_chunk=settings.prefill_chunk, decode_steps=settings.decode_steps, stream_interval=settings.stream_interval)
    name = args.served_model_name or args.model or "simulated"
    kv = model.kv_dtypes[settings.kv_dtype]
    api = Api(scheduler, model=name, info={"simulated": True, "time_scale": args.time_scale}, context_length=settings.context_length,
              max_queued=settings.max_queued, corrupts=kv.corrupts, logprob_drift=kv.logprob_drift, api_key=args.api_key, log=lambda _t: None)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(api.handle), args.host, args.port)
    sys.stderr.write("The server is fired up and ready to roll!\n")
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    await stop.wait()
    server.close()
    return 0
