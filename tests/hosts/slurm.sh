#!/bin/bash
# A real Slurm on the hosts of hosts.sh: slurmctld on head, slurmd on node1 ... nodeN, munge on all. Four pretended GPUs a node.
#
#   slurm.sh can           says why this machine cannot, and fails; silent when it can
#   slurm.sh start N       from head, as root; the hosts must be up
#   slurm.sh node K        what start runs on each host (K is head or a node's name); files come from the directory below
#
# SLURM_SHARED names a directory that all hosts see: the configuration and munge's key pass through it. There is nothing to stop:
# `hosts.sh down` ends the hosts and with them every daemon.
set -eu

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
shared=${SLURM_SHARED:-}

can() {
    local program
    for program in munged slurmctld slurmd srun sbatch; do
        command -v "$program" > /dev/null || [ -x "/usr/sbin/$program" ] || { echo "no $program (slurm-wlm, munge)"; return 1; }
    done
}

write_configuration() { # NODES
    mkdir -p "$shared"
    chmod 700 "$shared"
    dd if=/dev/urandom "of=$shared/munge.key" bs=128 count=1 status=none
    cat > "$shared/slurm.conf" << END
ClusterName=hvd
SlurmctldHost=head
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/run/slurm/ctld
SlurmdSpoolDir=/run/slurm/d
SlurmctldPidFile=/run/slurm/ctld.pid
SlurmdPidFile=/run/slurm/d.pid
SlurmctldLogFile=/run/slurm/ctld.log
SlurmdLogFile=/run/slurm/d.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,defer_batch=0
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
MinJobAge=300
KillWait=4
GresTypes=gpu
NodeName=node[1-$1] CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=2000 Gres=gpu:4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
    echo 'CgroupPlugin=cgroup/v1' > "$shared/cgroup.conf"
    echo 'NodeName=node[1-64] Name=gpu Type=fake File=/dev/fakegpu[0-3]' > "$shared/gres.conf"
}

start_munge() {
    local _
    umask 077
    cp "$shared/munge.key" /etc/munge/munge.key
    umask 022
    mkdir -p /run/munge /var/log/munge /var/lib/munge
    chown -R munge: /etc/munge /run/munge /var/log/munge /var/lib/munge
    setpriv --reuid munge --regid munge --init-groups /usr/sbin/munged < /dev/null > /dev/null 2>&1
    for _ in $(seq 200); do
        ! munge -n 2> /dev/null | unmunge > /dev/null 2>&1 || return 0
        sleep 0.02
    done
    echo "munge on $(hostname) does not answer" >&2
    return 1
}

node() { # NAME
    local k
    mkdir -p /etc/slurm /run/slurm/ctld /run/slurm/d
    cp "$shared"/*.conf /etc/slurm/
    for k in 0 1 2 3; do [ -e /dev/fakegpu$k ] || mknod -m 666 /dev/fakegpu$k c 1 3; done
    start_munge
    case $1 in
    head) slurmctld < /dev/null > /dev/null 2>&1 ;;
    *) slurmd -N "$1" < /dev/null > /dev/null 2>&1 ;;
    esac
}

start() { # NODES
    local k _
    write_configuration "$1"
    "$here/slurm.sh" node head
    for k in $(seq "$1"); do
        timeout 20 ssh -o BatchMode=yes -o KexAlgorithms=curve25519-sha256 "node$k" "SLURM_SHARED='$shared' '$here/slurm.sh' node node$k" &
    done
    wait
    for _ in $(seq 600); do
        [ "$(sinfo -h -t idle -o %D 2> /dev/null)" != "$1" ] || return 0
        sleep 0.05
    done
    sinfo >&2 || :
    tail -n 5 /run/slurm/ctld.log >&2
    return 1
}

case ${1:-help} in
can) can ;;
start) start "$2" ;;
node) node "$2" ;;
*) sed -n '2,9s/^# \{0,1\}//p' "$0" ;;
esac
