#!/usr/bin/env bash
# The GPU run on a machine that can reach no package index and runs commands of limited length.
#
#   offline.sh unpack FOLDER      unpack what FOLDER holds: {vllm,flashinfer,sglang,tuner}-site.tar.zst; an archive too large for
#                                 one transfer comes as NAME.1of2, NAME.2of2 in folders of their own, one after the other
#   offline.sh start [OPTIONS]    start `run.py OPTIONS` in a session of its own, so that it outlives this command
#   offline.sh wait SECONDS       show progress, and return when the run is over or the seconds are
#   offline.sh collect FOLDER     gather small results; also while it runs
#   offline.sh relaunch SECONDS ORDER FOLDER [OPTIONS]
#                                 warm and plain launches in turn (benchmarks/relaunch.py), results into FOLDER
#
# Needs a python3 of version 3.12 that has PyTorch. Everything lies under $GPU_RUN (default /tmp/gpu-run). FOLDER may hold
# compile.txt, the files that a launch imports: then only these are compiled beforehand.
set -euo pipefail

checkout=$(cd "$(dirname "$0")/../.." && pwd)
base=${GPU_RUN:-/tmp/gpu-run}
work=$base/work
unset PYTHONDONTWRITEBYTECODE

unzstd_to() { # unzstd_to ARCHIVE FOLDER: the archive's top folder is left out
  local zstd=zstd folder
  if ! command -v zstd > /dev/null; then
    # The program that came with this or an earlier folder, and the library that it needs.
    zstd=$base/zstd
    for folder in "$(dirname "$1")" "$base/joined"; do
      [[ -x $zstd || ! -e $folder/zstd ]] || { install -m 755 "$folder/zstd" "$zstd"; cp "$folder"/*.so.* "$base/"; }
    done
  fi
  LD_LIBRARY_PATH=$base:${LD_LIBRARY_PATH:-} "$zstd" -dc --long=27 "$1" | tar -C "$2" -xf - --strip-components=1
  # Now, on all cores, rather than in the first launch; some packages carry files for other versions of Python.
  if [[ -f $(dirname "$1")/compile.txt ]]; then
    (cd "$2" && xargs -P "$(nproc)" -n 64 python3 -m compileall -q) < "$(dirname "$1")/compile.txt" > /dev/null || true
  else
    python3 -m compileall -q -j 0 "$2" > /dev/null || true
  fi
}

environment() { # environment NAME: a virtual environment that also sees the packages of python3; prints its site folder
  local folder=$base/$1
  if [[ ! -x $folder/bin/python ]]; then
    python3 -m venv --without-pip "$folder"
    python3 - "$folder"/lib/python3.*/site-packages << 'PYTHON'
import pathlib, sys
folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
lines = [f"import site; site.addsitedir({path!r})\n" for path in folders]
(pathlib.Path(sys.argv[1]) / "zz-host.pth").write_text("".join(lines))
PYTHON
  fi
  echo "$folder"/lib/python3.*/site-packages
}

program() { # program ENVIRONMENT NAME MODULE FUNCTION
  local path=$base/$1/bin/$2
  # Processes that the engine spawns import this file again and must not run it.
  printf '#!%s\nimport sys\nfrom %s import %s\nif __name__ == "__main__":\n    sys.exit(%s())\n' \
    "$base/$1/bin/python" "$3" "$4" "$4" > "$path"
  chmod 755 "$path"
}

join() { # join FOLDER: keep the parts that it holds; once all are there, the whole archive stands in $base/joined
  local part archive
  for part in "$1"/*.[0-9]of[0-9]; do
    [[ -e $part ]] || continue
    mkdir -p "$base/joined"
    cp "$part" "$base/joined/"
    cp "$1"/zstd "$1"/*.so.* "$base/joined/" 2> /dev/null || true
    archive=$base/joined/$(basename "${part%.*}")
    local parts=("$archive".[0-9]of"${part##*of}")
    if ((${#parts[@]} == ${part##*of})); then
      cat "${parts[@]}" > "$archive"
      rm "${parts[@]}"
    fi
  done
}

unpack() {
  mkdir -p "$base"
  local archive
  join "$1"
  # The first import reads gigabytes of libraries from the disk: meanwhile.
  python3 -c 'import torch, transformers, triton' > /dev/null 2>&1 &
  for archive in "$1"/*-site.tar.zst "$base"/joined/*-site.tar.zst; do
    [[ -e $archive ]] || continue
    case $(basename "$archive") in
      vllm-* | flashinfer-*)
        unzstd_to "$archive" "$(environment vllm)"
        program vllm vllm vllm.entrypoints.cli.main main
        ;;
      sglang-*) unzstd_to "$archive" "$(environment sglang)" ;;
      tuner-*)
        unzstd_to "$archive" "$(environment tuner)"
        # A copy: the checkout may change while the run goes on.
        mkdir -p "$base/checkout"
        tar -C "$checkout" -cf - --exclude=./.* . | tar -C "$base/checkout" -xf -
        echo "$base/checkout" > "$(environment tuner)/tuner.pth"
        program tuner tuner tuner.cli.main main
        ;;
    esac
    echo "unpacked $archive after $SECONDS s"
  done
  rm -rf "$base/joined"/*-site.tar.zst
  wait
}

engines() { # the program folders of what is unpacked; vLLM's has no python3 that SGLang needs
  local name
  for name in sglang vllm; do
    if [[ -d $base/$name/bin ]]; then printf '%s:' "$base/$name/bin"; fi
  done
}

need_tuner() { # before commands that call it
  if [[ ! -x $base/tuner/bin/tuner ]]; then
    echo "nothing is unpacked in $base: offline.sh unpack FOLDER, for each folder (or set GPU_RUN to where it is)" >&2
    exit 1
  fi
}

start() {
  need_tuner
  mkdir -p "$work"
  # run.py holds it; asked here as well, since its output would replace that of the run that goes on.
  if ! flock --nonblock "$work/lock" true; then
    echo "a run goes on in $work: wait for its end first (offline.sh wait SECONDS)" >&2
    exit 1
  fi
  # Of an earlier run: whoever waits from now on waits for this one.
  rm -f "$work/done.json"
  PATH=$(engines)$PATH setsid --fork "$base/tuner/bin/python" "$base/checkout/tools/gpu_run/run.py" \
    --work "$work" --tuner "$base/tuner/bin/tuner" "$@" > "$work/run.out" 2>&1 < /dev/null
}

relaunch() {
  need_tuner
  PATH=$(engines)$PATH "$base/tuner/bin/python" -m benchmarks.relaunch --space h200-x2.yaml \
    --seconds "$1" --order "$2" --out "$3" "${@:4}"
}

wait_for_end() {
  need_tuner
  if [[ ! -e $work/run.out ]]; then
    echo "no run was started in $work: offline.sh start" >&2
    exit 1
  fi
  local deadline=$((SECONDS + $1))
  until [[ -e $work/done.json ]] || ((SECONDS >= deadline)); do sleep 2; done
  cat "$work/run.out"
  "$base/tuner/bin/tuner" study trials "$(cat "$work/name")" --storage "sqlite:///$work/study.db" || true
  tail -n 5 "$work/study.log" || true
  tail -n 12 "$(find "$work/runs" "$base/checkout/runs" -name server.log -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2-)" || true
  nvidia-smi --query-gpu=index,memory.used,utilization.gpu,clocks.sm,temperature.gpu --format=csv,noheader || true
}

case ${1:-} in
  unpack) unpack "$2" ;;
  start) shift; start "$@" ;;
  wait) wait_for_end "$2" ;;
  relaunch) shift; relaunch "$@" ;;
  collect) need_tuner; "$base/tuner/bin/python" "$base/checkout/tools/gpu_run/run.py" --work "$work" --tuner "$base/tuner/bin/tuner" --collect "$2" ;;
  *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
