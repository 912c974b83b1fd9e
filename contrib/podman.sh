#!/bin/sh
# A worker in a container of podman: hvdrun -np 8 -H node1:4,node2:4 contrib/podman.sh IMAGE COMMAND...
#
# The container shares with its host all that ranks of a job share: the network, /dev/shm, the numbers of processes (hvdctl why looks at
# them), the job's directory with its sockets, the present directory, and the variables of the job; PATH stays the image's own. A signal
# reaches the command. The image needs the program and its libhvd (pip install hvdrun, or libhvd0), not hvdrun itself.
#
#   PODMAN_OPTIONS       more options of podman run: '--device nvidia.com/gpu=all' for GPUs, '-v /data:/data' for data
#   PODMAN               the program with its own options, if it is not podman
#
# With cgroup v2 and the right to make cgroups the container lies in the job's cgroup, so nothing of it outlives the job, and it has the
# job's limits: podman's own (--memory, --pids-limit) do not work there. Otherwise a container whose podman was killed by SIGKILL goes on
# until its program ends; libhvd ends within 10 seconds.
set -eu

if [ $# -lt 2 ] || [ -z "${HVD_WORKER_SOCKET:-}" ]; then
    echo "usage: hvdrun [option ...] $0 IMAGE COMMAND [argument ...]" >&2
    exit 2
fi
job=$(dirname "$HVD_WORKER_SOCKET")
set -- --volume "$job:$job" --volume "$PWD:$PWD" --workdir "$PWD" "$@"
# podman splits the cgroup in which it is, and no other process can start in that one then. So it gets one of its own in that of the job.
own=/sys/fs/cgroup$(sed -n 's,^0::\(.*/hvdjob-[^/]*\)/processes$,\1,p' /proc/self/cgroup)/container-$$
case $own in
    */hvdjob-*) ! mkdir -p "$own" 2> /dev/null || ! echo $$ 2> /dev/null > "$own/cgroup.procs" || set -- --cgroups split --pids-limit -1 "$@" ;;
esac
[ "$(id -u)" = 0 ] || set -- --userns keep-id "$@"
# shellcheck disable=SC2086 # words
exec ${PODMAN:-podman} run --rm --interactive --log-driver none --network host --ipc host --pid host --security-opt label=disable \
    --env-host ${PODMAN_OPTIONS:-} "$@"
