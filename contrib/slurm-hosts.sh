#!/bin/sh
# The hosts that a Slurm job has now, for elastic jobs in a batch script: hvdrun --host-discovery-script 'slurm-hosts.sh 4', with
# 4 slots on each host. hvdrun runs this script once a second; Slurm is asked every 10 seconds (SLURM_HOSTS_SECONDS).
set -eu
slots=${1:-1}
own=${TMPDIR:-/tmp}/slurm-hosts-$(id -u)
mkdir -m 700 "$own" 2> /dev/null || { [ -O "$own" ] && [ ! -L "$own" ]; } || { echo "$own is another user's" >&2 && exit 1; }
kept=$own/${SLURM_JOB_ID:?this is no job of Slurm}
if [ -z "$(find "$kept" -newermt "-${SLURM_HOSTS_SECONDS:-10} seconds" 2> /dev/null)" ]; then
    nodes=$(squeue -h -j "$SLURM_JOB_ID" -o %N)
    scontrol show hostnames "$nodes" > "$kept.new"
    mv "$kept.new" "$kept"
fi
sed "s/\$/:$slots/" "$kept"
