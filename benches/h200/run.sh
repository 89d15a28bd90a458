#!/usr/bin/env bash
# Every measurement of docs/measurements on this machine: an H200 with its driver, nvcc, PyTorch for CUDA and Python 3.
#
#   cargo build --release
#   pip download --no-deps amd-aorta==0.3.0 -d wheels      # the Python toolkit that one of the tables compares with
#   benches/h200/run.sh target/release/aorta wheels/amd_aorta-0.3.0-py3-none-any.whl results
#
# Takes about twenty minutes; results/*.md are the tables, results/*.log what the scripts said.
set -uo pipefail
aorta=$(realpath "${1:-target/release/aorta}")
wheel=${2:+$(realpath "$2")}
out=$(mkdir -p "${3:-results}" && realpath "${3:-results}")
cd "$(dirname "$0")"

status=0
run() {
  local name=$1 start=$SECONDS
  shift
  if python3 "$name.py" --aorta "$aorta" --markdown "$out/$name.md" "$@" > "$out/$name.log" 2>&1; then
    echo "$name: done in $((SECONDS - start)) s"
  else
    status=1
    echo "$name: failed, see $out/$name.log"
    tail -n 5 "$out/$name.log"
  fi
}

{
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.limit --format=csv
  "$aorta" devices
} > "$out/machine.txt" 2>&1

run floor
run calls
run copies
run pytorch
run same
run simulated --measured "$out/measured.json"
run operations
if [ -n "$wheel" ]; then
  run aorta_python --wheel "$wheel"
else
  echo 'aorta_python: skipped, no wheel was given'
fi

# The README's first command, several times: a new process each.
for _ in 1 2 3 4 5; do
  "$aorta" exec moe.aorta --preset small --streams 16 --launch both > "$out/moe.txt" 2> "$out/moe.log" || status=1
  grep '^median' "$out/moe.txt"
done | tee "$out/moe_medians.txt"
exit $status
