#!/usr/bin/env bash
#
# Starts the sglang server that tuner measured.
#
# study          night, trial 7 (0123456789ab)
# measured       2027-01-15T08:00:00+00:00, tuner 0.1.0
# model          /models/Kimi-K2.5
# engine         sglang 0.5.23
# result         output_tok_s at C=1: 90.0 tok/s, 95 % interval 89.1–91.0 from launch to launch, n=3 launches, +41.6 % against the baseline
# result         output_tok_s at C=128: 2,320 tok/s, n=1 launch
# changed        nccl_proto: unset -> LL
# changed        graphs: on -> unset
# version        sglang 0.5.23
# version        driver 590.44
# machine        gpu: 8x RTX PRO 6000
#
# `tuner verify` starts this script, measures it again and compares:
# recorded: {"version": 1, "study": "night", "trial": 7, "engine": "sglang", "program": ["/opt/sglang/bin/python3", "-m", "sglang.launch_server"], "model": "/models/Kimi-K2.5", "gpus": 2, "simulated": false, "workload": {"input_tokens": 512, "output_tokens": 128, "input_lengths": {"kind": "fixed", "spread": 0.0, "min": 1, "max": null}, "output_lengths": {"kind": "fixed", "spread": 0.0, "min": 1, "max": null}, "shape": {"kind": "random"}, "levels": [1, 32, 128], "rates": [], "arrivals": "poisson", "rate_seconds": 30.0, "requests_per_slot": 2, "min_requests": 8, "single_stream_min_requests": 5, "single_stream_max_requests": 30, "precision": 0.005, "repeats": 2, "warmup_requests": 12, "api": "completions", "tokenizer": null, "goodput": null, "request_timeout_s": 120.0, "stall_timeout_s": 60.0, "seed": 0}, "numbers": [{"metric": "output_tok_s", "level": 1, "center": 90.04, "low": 89.1, "high": 91.0, "launches": 3}, {"metric": "output_tok_s", "level": 128, "center": 2320.0, "low": null, "high": null, "launches": 1}], "machine": {"gpu": "8x RTX PRO 6000"}, "versions": {"sglang": "0.5.23", "driver": "590.44"}}
#
# Listens on the port that sglang takes by itself; the trial had one of its own.
# Set in your environment to change it, as in `PORT=9000 ./serve.sh`: HOST=127.0.0.1 PORT=30000 CUDA_VISIBLE_DEVICES=0,1.
# Needed from your environment, because secrets are not written down: API_KEY.
# Arguments to this script are added to the command.

set -euo pipefail

: "${API_KEY:?set API_KEY: its value is a secret and was not written down}"

[[ -n ${HOST:-} ]] || HOST=127.0.0.1
[[ -n ${PORT:-} ]] || PORT=30000
[[ -n ${CUDA_VISIBLE_DEVICES:-} ]] || CUDA_VISIBLE_DEVICES=0,1

# The measured environment, and nothing else that may be set where this script runs.
server_env=(
  'PYTHONUNBUFFERED=1'
  'CUDA_DEVICE_ORDER=PCI_BUS_ID'
  'CUDA_VISIBLE_DEVICES='"$CUDA_VISIBLE_DEVICES"
  'NCCL_PROTO=LL'
  'NCCL_ALGO=ring,tree;allreduce:tree'
  'no_proxy=127.0.0.1,localhost,::1'
  'NO_PROXY=127.0.0.1,localhost,::1'
)
for name in PATH HOME USER LOGNAME SHELL LANG LC_ALL LC_CTYPE TZ TMPDIR LD_LIBRARY_PATH HF_TOKEN HF_HOME; do
  if printenv "$name" > /dev/null; then server_env+=("$name=${!name}"); fi
done

server=(
  /opt/sglang/bin/python3 -m sglang.launch_server
  --model-path /models/Kimi-K2.5
  --host "$HOST"
  --port "$PORT"
  --attention-backend flashinfer
  --enable-metrics
  --json-model-override-args $'{"rope_scaling": null, "note": "it\'s $5"}'
  --api-key "$API_KEY"
)

exec env -i "${server_env[@]}" "${server[@]}" "$@"
