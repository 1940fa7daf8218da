#!/usr/bin/env bash
#
# Starts the vllm server that tuner measured.
#
# study          gpu, trial 36 (f2b97d473ec9)
# measured       2026-11-30T13:22:24+00:00, tuner 0.1.0
# model          .cache/models/8b
# engine         vllm 0.26.0
# result         output_tok_s at C=1: 301.1 tok/s, 95 % interval 300.7–301.6 from launch to launch, n=3 launches of the confirmation, +8.2 % against the baseline
# result         output_tok_s at C=128: 17,925 tok/s, 95 % interval 16,879–19,036 from launch to launch, n=3 launches of the confirmation, +9.6 % against the baseline
# changed        attention_backend: FLASH_ATTN -> TRITON_ATTN
# changed        cuda_graph: FULL_AND_PIECEWISE -> FULL
# changed        max_batched_tokens: 8192 -> 4096
# version        vllm 0.26.0
# version        torch 2.11.0
# version        nvidia-nccl-cu13 2.28.9
# version        triton 3.6.0
# version        transformers 5.17.0
# machine        hostname: vm
# machine        kernel: 6.18.44-fc-v657-gpu
# machine        cpu: Intel(R) Xeon(R) Processor
# machine        cores: 32
# machine        memory_gib: 252
# machine        gpus: NVIDIA H200, NVIDIA H200
# machine        container: docker
# machine        compute_capability: 9.0
# machine        links: 0-1:NVLink
# machine        pcie: gen5 x16, gen5 x16
# machine        driver: 580.159.04
# machine        cuda: 13.0
# machine        nccl_conf: /root/.nccl.conf, /etc/nccl.conf
# machine        model_config: 99b785377771d5f2
# machine        gpu_used_before_mib: 615, 615
# machine        nccl: 2.28.9 (/opt/torch/.venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2)
# machine        gpu_clock_mhz: 1980 (1935–1980)
# machine        gpu_temperature_c: 50 (39–60)
# machine        gpu_power_w: 410 (120–595)
# machine        gpu_slowed_by: power_cap 30%
#
# `tuner verify` starts this script, measures it again and compares:
# recorded: {"version": 1, "study": "gpu", "trial": 36, "engine": "vllm", "program": ["vllm", "serve"], "model": ".cache/models/8b", "gpus": 2, "simulated": false, "workload": {"input_tokens": 128, "output_tokens": 128, "input_lengths": {"kind": "fixed", "spread": 0.0, "min": 1, "max": null}, "output_lengths": {"kind": "fixed", "spread": 0.0, "min": 1, "max": null}, "shape": {"kind": "random"}, "levels": [1, 32, 128], "rates": [], "arrivals": "poisson", "rate_seconds": 30.0, "requests_per_slot": 2, "min_requests": 8, "single_stream_min_requests": 5, "single_stream_max_requests": 12, "precision": 0.005, "repeats": 2, "warmup_requests": 12, "api": "completions", "tokenizer": null, "goodput": null, "request_timeout_s": 120.0, "stall_timeout_s": 60.0, "seed": 0}, "numbers": [{"metric": "output_tok_s", "level": 1, "center": 301.1267458734332, "low": 300.6659614525846, "high": 301.5882364676094, "launches": 3}, {"metric": "output_tok_s", "level": 128, "center": 17925.00592918983, "low": 16879.009169011617, "high": 19035.82339130308, "launches": 3}], "machine": {"hostname": "vm", "kernel": "6.18.44-fc-v657-gpu", "cpu": "Intel(R) Xeon(R) Processor", "cores": "32", "memory_gib": "252", "gpus": "NVIDIA H200, NVIDIA H200", "container": "docker", "compute_capability": "9.0", "links": "0-1:NVLink", "pcie": "gen5 x16, gen5 x16", "driver": "580.159.04", "cuda": "13.0", "nccl_conf": "/root/.nccl.conf, /etc/nccl.conf", "model_config": "99b785377771d5f2", "gpu_used_before_mib": "615, 615", "nccl": "2.28.9 (/opt/torch/.venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2)", "gpu_clock_mhz": "1980 (1935\u20131980)", "gpu_temperature_c": "50 (39\u201360)", "gpu_power_w": "410 (120\u2013595)", "gpu_slowed_by": "power_cap 30%"}, "versions": {"vllm": "0.26.0", "torch": "2.11.0", "nvidia-nccl-cu13": "2.28.9", "triton": "3.6.0", "transformers": "5.17.0"}}
#
# Listens on the port that vllm takes by itself; the trial had one of its own.
# Set in your environment to change it, as in `PORT=9000 ./serve.sh`: HOST=127.0.0.1 PORT=8000 CUDA_VISIBLE_DEVICES=0,1.
# Arguments to this script are added to the command.

set -euo pipefail

[[ -n ${HOST:-} ]] || HOST=127.0.0.1
[[ -n ${PORT:-} ]] || PORT=8000
[[ -n ${CUDA_VISIBLE_DEVICES:-} ]] || CUDA_VISIBLE_DEVICES=0,1

# The measured environment, and nothing else that may be set where this script runs.
server_env=(
  'PYTHONUNBUFFERED=1'
  'CUDA_DEVICE_ORDER=PCI_BUS_ID'
  'CUDA_VISIBLE_DEVICES='"$CUDA_VISIBLE_DEVICES"
  'NCCL_NVLS_ENABLE=0'
  'TORCH_SYMM_MEM_DISABLE_MULTICAST=1'
  'NVSHMEM_DISABLE_NVLS=1'
  'VLLM_ALLREDUCE_USE_SYMM_MEM=0'
  'VLLM_FLASHINFER_ALLREDUCE_BACKEND=trtllm'
  'VLLM_NO_USAGE_STATS=1'
  'HF_HUB_OFFLINE=1'
  'TRANSFORMERS_OFFLINE=1'
  'VLLM_USE_FLASHINFER_SAMPLER=0'
  'NCCL_DEBUG=WARN'
  'no_proxy=127.0.0.1,localhost,::1'
  'NO_PROXY=127.0.0.1,localhost,::1'
)
for name in PATH HOME USER LOGNAME SHELL LANG LC_ALL LC_CTYPE TZ TMPDIR LD_LIBRARY_PATH HF_TOKEN HF_HOME HUGGING_FACE_HUB_TOKEN CUDA_HOME; do
  if printenv "$name" > /dev/null; then server_env+=("$name=${!name}"); fi
done

server=(
  vllm serve
  .cache/models/8b
  --host "$HOST"
  --port "$PORT"
  --tensor-parallel-size 2
  --load-format dummy
  --dtype bfloat16
  --max-model-len 2048
  --kv-cache-memory-bytes 17179869184
  --kernel-config '{"enable_flashinfer_autotune": false}'
  --compilation-config '{"cudagraph_capture_sizes":[1,2,4,8,16,32,64,128],"cudagraph_mode":"FULL","pass_config":{"fuse_allreduce_rms":false}}'
  --no-disable-custom-all-reduce
  --attention-backend TRITON_ATTN
  --max-num-seqs 1024
  --max-num-batched-tokens 4096
)

exec env -i "${server_env[@]}" "${server[@]}" "$@"
