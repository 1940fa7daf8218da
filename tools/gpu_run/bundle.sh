#!/usr/bin/env bash
# Pack tuner's own dependencies into FOLDER/tuner-site.tar.zst, for a machine that can reach no package index.
#
#   tools/gpu_run/bundle.sh FOLDER [PYTHON]     PYTHON: any with pip; the packages are for 3.12 on x86-64 Linux
#
# Ray's wheel is cut to what a study uses: no Java, no dashboard pages, no RLlib. That takes it from 79 to about 30 MB.
set -euo pipefail
if (($# < 1)); then
  sed -n '2,6s/^# \{0,1\}//p' "$0"
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
python=${2:-python3}
level=${LEVEL:-15}

platforms=()
for n in 17 24 26 27 28 31 34 35; do platforms+=(--platform "manylinux_2_${n}_x86_64"); done
"$python" -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
  "${platforms[@]}" --platform manylinux2014_x86_64 --platform manylinux1_x86_64 \
  -d "$folder/wheels" -r "$here/tuner-site.txt"

site=$folder/tuner-site
rm -rf "$site"
mkdir "$site"
"$python" - "$site" "$folder"/wheels/*.whl <<'PYTHON'
import sys, zipfile
from pathlib import Path

site, *wheels = map(Path, sys.argv[1:])
for wheel in wheels:
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = Path(archive.extract(member, site))
            if path.is_file() and member.external_attr >> 16 & 0o111:  # Ray's own programs
                path.chmod(0o755)
PYTHON
rm -rf "$site"/ray/jars "$site"/ray/dashboard/client "$site"/ray/rllib "$site"/ray/core/libjemalloc.so
find "$site" -name tests -type d -prune -exec rm -rf {} +
tar -C "$folder" -cf - --sort=name --owner=0 --group=0 tuner-site | zstd -T0 "-$level" --long=27 -q -f -o "$site.tar.zst"
ls -l "$site.tar.zst"
