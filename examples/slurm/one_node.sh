#!/bin/bash
# A Slurm of one node on this machine, to try the scripts of this folder as root, in a container:
#
#     apt-get install slurm-wlm slurmctld slurmd munge
#     examples/slurm/one_node.sh start /tmp/one_node   # with four pretended GPUs
#     export SLURM_CONF=/tmp/one_node/slurm.conf
#     sinfo && sbatch ...
#     examples/slurm/one_node.sh stop /tmp/one_node    # ends the daemons that it started
set -euo pipefail

COMMAND=${1:?start or stop}
FOLDER=$(realpath -m "${2:?the folder of the configuration, the logs and the state}")

start() {
  rm -rf "$FOLDER/state" "$FOLDER/spool"  # which remember a node of an earlier configuration
  mkdir -p "$FOLDER/state" "$FOLDER/spool"
  # any devices: nothing is confined to them
  for device in null zero full random; do
    echo "NodeName=localhost Name=gpu File=/dev/$device"
  done >"$FOLDER/gres.conf"
  cat >"$FOLDER/slurm.conf" <<CONF
ClusterName=one_node
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=${SLURMCTLD_PORT:-6817}
SlurmdPort=${SLURMD_PORT:-6818}
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmUser=root
StateSaveLocation=$FOLDER/state
SlurmdSpoolDir=$FOLDER/spool
SlurmctldPidFile=$FOLDER/slurmctld.pid
SlurmdPidFile=$FOLDER/slurmd.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,batch_sched_delay=0
SlurmdParameters=config_overrides
KillWait=30
ReturnToService=2
GresTypes=gpu
NodeName=localhost NodeAddr=127.0.0.1 CPUs=8 Gres=gpu:4 State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF=$FOLDER/slurm.conf
  if ! munge -n >/dev/null 2>&1; then
    mkdir -p /run/munge && chown munge: /run/munge
    # in the foreground, so that its id is known; --force: the folders' owners are not checked
    munged --foreground --force >"$FOLDER/munged.log" 2>&1 &
    echo $! >>"$FOLDER/started"
  fi
  for _ in $(seq 50); do munge -n >/dev/null 2>&1 && break; sleep 0.2; done
  slurmctld -D -f "$SLURM_CONF" >"$FOLDER/slurmctld.log" 2>&1 &
  echo $! >>"$FOLDER/started"
  slurmd -D -N localhost -f "$SLURM_CONF" >"$FOLDER/slurmd.log" 2>&1 &
  echo $! >>"$FOLDER/started"
  for _ in $(seq 100); do
    if sinfo -h -o %t 2>/dev/null | grep -q idle; then echo "up: export SLURM_CONF=$SLURM_CONF"; return; fi
    sleep 0.3
  done
  tail "$FOLDER"/*.log >&2
  stop
  return 1
}

stop() {
  # newest first: slurmd, slurmctld, munged
  tac "$FOLDER/started" | while read -r pid; do
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.2; done
  done
  rm -f "$FOLDER/started"
}

"$COMMAND"
