# A cluster of Slurm on the two hosts of hosts.sh, in the current folder; sourced by the script of slurm.rs.
#
# `node HOST` starts the daemon of a node, and `crash` kills every process of gpu02. `over JOB` waits for the end of a job.
# All processes end with the namespace of process numbers that they are in.
PATH=$PWD/bin:$PATH:/usr/sbin
skip() { echo "skipped: $*"; exit; }
for program in munged slurmctld slurmd sbatch srun; do
  command -v $program > /dev/null || skip "there is no \`$program\` here"
done

# `aorta` of the batch scripts: the binary, with the options in MORE.
mkdir bin
printf '#!/bin/sh\nexec "%s" "$@" $MORE\n' "$AORTA" > bin/aorta
chmod +x bin/aorta

export SLURM_CONF=$PWD/slurm.conf
# Jobs have the processors that the file says. A job of a node that died is submitted again after `cred_expire`.
cat > slurm.conf <<END
ClusterName=scratch
SlurmctldHost=gpu01
SlurmUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$PWD/munge.socket,cred_expire=5
StateSaveLocation=$PWD/state
SlurmdSpoolDir=$PWD/spool-%h
SlurmctldPidFile=$PWD/slurmctld.pid
SlurmdPidFile=$PWD/slurmd-%h.pid
SlurmctldLogFile=$PWD/slurmctld.log
SlurmdLogFile=$PWD/slurmd-%h.log
SlurmdParameters=config_overrides
SlurmdTimeout=4
MessageTimeout=4
TCPTimeout=1
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
GresTypes=gpu
NodeName=gpu[01-02] CPUs=16 Gres=gpu:8
PartitionName=all Nodes=ALL Default=YES
END
# Slurm asks of a GPU only that its file is there.
mkdir state gpus
touch gpus/{0..7}
echo "Name=gpu File=$PWD/gpus/[0-7]" > gres.conf

node() {
  local where=
  [ "$1" = gpu01 ] || where=on
  $where slurmd -D > "$1.log" 2>&1 &
}

# Waits for a command to succeed, for so many seconds.
await() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}

idle() { [ "$(sinfo --noheader --format '%T %D' 2> /dev/null)" = 'idle 2' ]; }
over() { await 600 ended "$1"; }
ended() { [ -z "$(squeue --noheader --job "$1" 2> /dev/null)" ]; }

crash() {
  local process there
  there=$(readlink "/proc/$gpu02/ns/net")
  for process in /proc/[0-9]*; do
    # The process that keeps the namespaces stays.
    [ "$(readlink "$process/ns/net")" != "$there" ] || [ "$process" = "/proc/$gpu02" ] || kill -9 "${process#/proc/}" || true
  done 2> /dev/null
}

head -c 1024 /dev/urandom > munge.key
chmod 400 munge.key
munged --force --key-file=munge.key --socket="$PWD/munge.socket" --pid-file="$PWD/munged.pid" \
  --log-file="$PWD/munged.log" --seed-file="$PWD/munged.seed" 2> munged.err || skip "\`munged\` does not start: $(tail -n 1 munged.err)"
slurmctld -D > gpu00.log 2>&1 &
node gpu01
node gpu02
await 20 idle || skip "the daemons of Slurm do not find each other: $(tail -qn 1 slurmctld.log slurmd-*.log | tr '\n' ' ')"
