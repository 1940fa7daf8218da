"""Start, serve, stop: one launch of the simulated engine."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Sequence

import uvloop

from tuner.engines.simulated.api import Api
from tuner.engines.simulated.faults import FAULT_VARIABLE, Fault, Faults, FaultSpecError, parse_all, parse_fault
from tuner.engines.simulated.flags import REMOVED_FLAGS, build_parser
from tuner.engines.simulated.incidents import Incidents, end_process
from tuner.engines.simulated.info import server_info
from tuner.engines.simulated.journal import BANNER, Journal
from tuner.engines.simulated.model import Speed, check_regions
from tuner.engines.simulated.modelfile import SimModel, load_model
from tuner.engines.simulated.noise import Drift, LaunchNoise
from tuner.engines.simulated.phases import Launch, run_phases, say_ready
from tuner.engines.simulated.scheduler import Scheduler
from tuner.engines.simulated.servinglog import ServingLog
from tuner.engines.simulated.settings import Settings, resolve
from tuner.engines.simulated.strays import leave_child
from tuner.engines.simulated.wire import Connection
from tuner.errors import TunerError

_BACKLOG = 2048
_ADDRESS_IN_USE = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server until it is told to stop; returns its exit status."""
    parser = build_parser()
    words = list(sys.argv[1:] if argv is None else argv)
    for word in words:
        if word.split("=")[0] in REMOVED_FLAGS:
            parser.error(f"{word} was removed: {REMOVED_FLAGS[word.split('=')[0]]}")
    args = parser.parse_args(words)
    if args.time_scale <= 0:
        parser.error(f"argument --time-scale: {args.time_scale} is not positive")
    try:
        asked = parse_all(args.fault, os.environ.get(FAULT_VARIABLE, ""))
    except FaultSpecError as error:
        parser.error(f"argument --fault: {error}")
    try:
        model = load_model(args.sim_model)
        check_regions(model)
    except TunerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    settings = resolve(args, os.environ, model)
    return uvloop.run(_Server(args, model, settings, asked).run())


class _Server:
    def __init__(self, args: argparse.Namespace, model: SimModel, settings: Settings, asked: list[Fault]) -> None:
        self._args, self._model, self._settings = args, model, settings
        self._seed = args.launch_seed if args.launch_seed is not None else secrets.randbits(48)
        self._speed = Speed(model, settings)
        region = self._speed.failing_region()
        if region is not None:
            asked = [*asked, parse_fault(region.fault, detail=region.why)]
        self._faults = Faults(asked, self._seed)
        self._journal = Journal(args.flavor, quiet=args.log_level == "warning")
        self._incidents = Incidents(self._faults, self._journal, args.flavor)
        self._name = args.served_model_name or args.model or "simulated"
        self._launch = Launch(
            settings=settings,
            model=model,
            model_name=args.model or "simulated",
            url=f"http://{args.host}:{args.port}",
            kv_tokens=self._speed.kv_tokens(),
            env=os.environ,
            tp_size=args.tp_size,
        )

    async def run(self) -> int:
        """The whole life of the server; returns the exit status."""
        args, journal = self._args, self._journal
        journal.raw(BANNER.format(model=self._model.name, flavor=args.flavor, scale=args.time_scale))
        if self._faults.named("ignore-sigterm") is not None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        # vLLM takes its port before it loads anything, SGLang only when it is about to serve.
        early = self._bind() if args.flavor == "vllm" else None
        await run_phases(self._launch, journal, time_scale=args.time_scale, on_phase=self._incidents.in_phase)
        api = self._make()
        late = self._faults.named("bind-late")
        if late is not None:
            say_ready(self._launch, journal)
            await asyncio.sleep(late.number("seconds") / args.time_scale)
        listening = early or self._bind()
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(api.handle), sock=listening, backlog=_BACKLOG
        )
        holder = self._faults.named("port-child")
        if holder is not None:
            leave_child(args.flavor, lifetime_s=holder.number("lifetime"), keep_fds=(listening.fileno(),))
        await self._incidents.in_phase("serving")
        told = self._listen_to_signals()
        if late is None:
            say_ready(self._launch, journal)
        await told.wait()
        api.draining = True
        journal.main("SIGTERM received. Draining requests and shutting down...")
        slow = self._faults.named("slow-shutdown")
        if slow is not None:
            await asyncio.sleep(slow.number("seconds"))
        server.close()
        journal.uvicorn("Shutting down")
        journal.uvicorn("Application shutdown complete.")
        return 0

    def _make(self) -> Api:
        args, model, settings = self._args, self._model, self._settings
        since = args.drift_since if args.drift_since is not None else time.time()
        noise = LaunchNoise(
            model.noise,
            seed=self._seed,
            scale=args.noise_scale,
            full_batch=model.workload.full_batch,
            drift=Drift(args.drift_percent / 100, args.drift_over, since),
            wall_clock=time.time,
        )
        scheduler = Scheduler(
            self._speed,
            noise,
            time_scale=args.time_scale,
            max_running=settings.max_running,
            prefill_chunk=settings.prefill_chunk,
            decode_steps=settings.decode_steps,
            stream_interval=settings.stream_interval,
        )
        kv = model.kv_dtypes[settings.kv_dtype]
        api = Api(
            scheduler,
            settings,
            model=self._name,
            info=server_info(args, os.environ, model, settings, self._speed, self._seed),
            corrupts=kv.corrupts,
            logprob_drift=kv.logprob_drift,
            faults=self._faults,
            api_key=args.api_key,
        )
        if not self._journal.quiet:
            scheduler.watchers.append(ServingLog(scheduler, self._journal, args.flavor, args.time_scale).look)
        self._incidents.watch(scheduler, api)
        return api

    def _bind(self) -> socket.socket:
        """The socket for HTTP, or the end of the process in the engine's words."""
        args = self._args
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if self._faults.named("port-stolen") is not None:
                raise OSError(98, "Address already in use")
            listening.bind((args.host, args.port))
        except OSError as error:
            if args.flavor == "vllm":
                self._journal.raw(
                    f"Traceback (most recent call last):\nOSError: [Errno {error.errno}] {error.strerror}"
                )
            else:
                where = f"('{args.host}', {args.port})"
                self._journal.uvicorn(
                    f"[Errno {error.errno}] error while attempting to bind on address {where}: address already in use",
                    level="ERROR",
                )
                self._journal.uvicorn("Waiting for application shutdown.")
            end_process(_ADDRESS_IN_USE)
        return listening

    def _listen_to_signals(self) -> asyncio.Event:
        """Set on SIGTERM or SIGINT; until now these ended the process at once, as they do while engines load."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        if self._faults.named("ignore-sigterm") is None:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, told.set)
        return told
