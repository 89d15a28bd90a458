#!/usr/bin/env bash
# Two GPUs of one machine as two hosts: NCCL over the network, ranks that meet by a secret, results compared with the CPU's.
#
#   benches/h200/two_hosts.sh [AORTA] [OUT]
#
# AORTA is the program (target/release/aorta), OUT a folder for the records (target/two_hosts). Needs two GPUs and NCCL;
# no right to make namespaces. Each rank has a NCCL_HOSTID of its own, so that NCCL takes the two for different hosts,
# and neither peer-to-peer nor shared memory: everything goes through sockets of the loopback interface. Whatever differs
# from the CPU's results, or a transport that is no socket, ends the script with an error.
set -euo pipefail
cd "$(dirname "$0")/../.."
aorta=$(realpath "${1:-target/release/aorta}")
out=${2:-target/two_hosts}
mkdir -p "$out"
out=$(realpath "$out")
AORTA_SECRET=$(head -c 24 /dev/urandom | base64)
export AORTA_SECRET
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-29500}
export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,P2P

# Runs a command of aorta on both hosts; what NCCL says ends in files beside the records.
both() {
  local name=$1
  shift
  local rank code=0
  for rank in 1 0; do
    RANK=$rank LOCAL_RANK=$rank NCCL_HOSTID=host$rank NCCL_DEBUG_FILE="$out/$name.nccl$rank" \
      timeout 300 "$aorta" exec "$@" --backend cuda --verify --json "$out/$name.json" > "$out/$name.out$rank" 2> "$out/$name.err$rank" &
    pids[rank]=$!
  done
  for rank in 0 1; do
    wait "${pids[rank]}" || { code=$?; echo "$name: rank $rank ended with $code" >&2; cat "$out/$name.err$rank" >&2; }
  done
  [ "$code" -eq 0 ] || return 1
  grep -q 'verified against the CPU' "$out/$name.out0" || { echo "$name: not verified" >&2; return 1; }
  grep -q 'via NET/Socket' "$out/$name.nccl0" || { echo "$name: NCCL did not use sockets" >&2; return 1; }
  ! grep -qE 'via (P2P|SHM)' "$out/$name.nccl"[01] || { echo "$name: NCCL took another way than sockets" >&2; return 1; }
  echo "$name: both hosts agree with the CPU, over NET/Socket"
  grep -E '^(median|verified)' "$out/$name.out0"
}

both all_reduce all_reduce --set size=1MiB --set sizes=2 --set repeat=2 --effort quick --launch both
both fsdp_overlap fsdp_overlap --preset tiny --effort quick
both moe moe --preset tiny --effort quick

echo "records and what NCCL said: $out"
