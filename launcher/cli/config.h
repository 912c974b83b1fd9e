/* hvdrun's options: the table, and the plain struct that it fills. Parsed once; nothing reads the command
 * line again.
 *
 * A row: X(C type, field, option type, flags, metavar, variables, yaml keys, min, max, words, default,
 * exclusive, group, help). Every option has a variable HVDRUN_... and a key, but for actions, and for one of
 * --X and --no-X; horovodrun's own stand beside them. An option is here only when it acts, or when horovodrun
 * has it and hvdrun says why there is nothing to do. To add one, add a row, use its field, and run the unit
 * test that compares the manual page. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/err.h"
#include "common/net/port_range.h"
#include "common/options/options.h"
#include "launcher/cli/programs.h"
#include "launcher/plan/placement.h"

#define CONFIG_RANKS_MAX 1000000

#define JOB_WAIT_NO      (-1) /* config.wait_ms */
#define JOB_WAIT_FOREVER (-2)

#define CONFIG_WHERE    "Ranks and hosts"
#define CONFIG_PLACE    "Placement"
#define CONFIG_START    "Reaching the hosts"
#define CONFIG_OUTPUT   "Input and output"
#define CONFIG_WORKER   "The workers"
#define CONFIG_LIFE     "Life of the job"
#define CONFIG_ELASTIC  "Elastic jobs (hosts come and go, ranks die, the others train on)"
#define CONFIG_ENGINE   "Collectives (programs that use libhvd)"
#define CONFIG_HOROVOD  "For Horovod's own workers (from horovodrun)"
#define CONFIG_NEEDLESS "Without effect (from horovodrun; hvdrun says why, and goes on)"
#define CONFIG_ABOUT    "About"

/* clang-format off */
#define CONFIG_OPTIONS(X) \
    X(int64_t, num_proc, OPTION_INTEGER, "-np, -n, --num-proc", "N", "HVDRUN_NUM_PROC", "num_proc", \
      1, CONFIG_RANKS_MAX, NULL, NULL, NULL, CONFIG_WHERE, \
      "Number of ranks. Without this option: one rank for every slot.") \
    X(const char *, hosts, OPTION_TEXT, "-H, --hosts", "HOST[:SLOTS],...", "HVDRUN_HOSTS", "hosts", \
      0, 0, NULL, NULL, "the hosts", CONFIG_WHERE, \
      "Hosts and their slots, as in a:4,user@b:4,[::1]:2. A host without a number has one slot for each of its " \
      "GPUs, or one slot. Without hosts hvdrun takes those of the Slurm, LSF, PBS or Grid Engine job in which it " \
      "runs, or else this host.") \
    X(const char *, hostfile, OPTION_TEXT, "-hostfile, --hostfile", "FILE", "HVDRUN_HOSTFILE", "hostfile", \
      0, 0, NULL, NULL, "the hosts", CONFIG_WHERE, \
      "Take the hosts from FILE, one a line: host, host:4 or host slots=4 max_slots=8. # starts a comment.") \
    X(int64_t, slots_per_host, OPTION_INTEGER, "--slots, --slots-per-host", "N", "HVDRUN_SLOTS_PER_HOST", "slots_per_host", \
      1, 1000000, NULL, NULL, NULL, CONFIG_WHERE, \
      "Slots of every host that is given without a number.") \
    X(const char *, config_file, OPTION_TEXT, "--config-file", "FILE", "HVDRUN_CONFIG_FILE", NULL, \
      0, 0, NULL, NULL, NULL, CONFIG_WHERE, \
      "Read options from a YAML file, with hvdrun's or horovodrun's keys; see hvdrun.conf(5). The command line and " \
      "variables override the file.") \
    X(int, dry_run, OPTION_MODE, "--dry-run", "[=FORMAT]", "HVDRUN_DRY_RUN", "dry_run", \
      0, 0, "no|text|json", "no", NULL, CONFIG_WHERE, \
      "Show the host of each rank, as text or JSON, and the GPUs of this host if the job uses it. Start nothing.") \
    X(const char *, map_by, OPTION_TEXT, "--map-by", "WHAT", "HVDRUN_MAP_BY", "map_by", \
      0, 0, NULL, "slot", NULL, CONFIG_PLACE, \
      "How ranks are distributed over hosts. slot fills one host after the other. node gives one rank to each host " \
      "in turn. numa, socket and core fill host by host, and within a host give one rank to each such unit in " \
      "turn. :PE=N at the end binds each rank to N cores; :OVERSUBSCRIBE means --oversubscribe.") \
    X(int, bind_to, OPTION_CHOICE, "--bind-to", "WHAT", "HVDRUN_BIND_TO", "bind_to", \
      0, 0, "auto|none|core|numa|socket", "auto", NULL, CONFIG_PLACE, \
      "Bind each rank to one core, or to all cores of a NUMA node or socket. Ranks share a core only with " \
      "--oversubscribe. auto: bind to the unit that --map-by names, else to nothing. horovodrun binds nothing " \
      "either, because training processes have threads.") \
    X(bool, report_bindings, OPTION_FLAG, "--report-bindings", NULL, "HVDRUN_REPORT_BINDINGS", "report_bindings", \
      0, 0, NULL, NULL, NULL, CONFIG_PLACE, \
      "Print the processors on which each rank may run, when it has started.") \
    X(int, gpu_bind, OPTION_CHOICE, "--gpu-bind", "WHAT", "HVDRUN_GPU_BIND", "gpu_bind", \
      0, 0, "list|single|none", "list", NULL, CONFIG_PLACE, \
      "The GPUs that each rank sees (CUDA_VISIBLE_DEVICES). list: all GPUs of the host in the order of the PCI " \
      "bus, so that set_device(local_rank) works. single: only the GPU at the place of its local rank. none: " \
      "hvdrun does not change the variables. If the host or -x sets a list, hvdrun hands out the GPUs of that " \
      "list; under a managed agent it always hands out those of the lease. If a GPU is in MIG mode, the list has " \
      "the UUIDs of its instances, and each rank sees one.") \
    X(int, mps, OPTION_CHOICE, "--mps", "WHEN", "HVDRUN_MPS", "mps", \
      0, 0, "no|auto|yes", "no", NULL, CONFIG_PLACE, \
      "Start CUDA's multi-process service on each host, for this job and its GPUs alone. yes: the job does not " \
      "start without the service. auto: only if processes of the job share a GPU and nothing prevents the service. " \
      "A service that the user or the host already runs is used instead. See GPUS.") \
    X(const char *, rankfile, OPTION_TEXT, "-rf, --rankfile", "FILE", "HVDRUN_RANKFILE", "rankfile", \
      0, 0, NULL, NULL, NULL, CONFIG_PLACE, \
      "Place and bind each rank by a file in OpenMPI's format. rank 0=host slot=1:0-2 means cores 0 to 2 of socket " \
      "1 of that host.") \
    X(const char *, ppr, OPTION_TEXT, "--ppr", "N[:WHAT]", "HVDRUN_PPR", "ppr", \
      0, 0, NULL, NULL, NULL, CONFIG_PLACE, \
      "Start N ranks on each host, instead of one for each slot. With :socket, :numa or :core: N ranks on each " \
      "such unit of a host, bound to it. :node means the host. --map-by ppr:N:WHAT is the same.") \
    X(bool, oversubscribe, OPTION_FLAG, "--oversubscribe", NULL, "HVDRUN_OVERSUBSCRIBE", "oversubscribe", \
      0, 0, NULL, NULL, "oversubscription", CONFIG_PLACE, \
      "Allow more ranks than slots. When all slots are taken, the other ranks are spread evenly over the hosts, up " \
      "to each host's max_slots.") \
    X(bool, no_oversubscribe, OPTION_FLAG, "--no-oversubscribe", NULL, NULL, NULL, \
      0, 0, NULL, NULL, "oversubscription", CONFIG_PLACE, \
      "Treat more ranks than slots as an error. This is the default, unless HVDRUN_OVERSUBSCRIBE is set.") \
    X(int64_t, ssh_port, OPTION_INTEGER, "-p, --ssh-port", "PORT", "HVDRUN_SSH_PORT", "ssh_port", \
      1, 65535, NULL, NULL, NULL, CONFIG_START, \
      "Port of the hosts' SSH servers. Without this option: the port of the SSH configuration, or 22.") \
    X(const char *, ssh_identity_file, OPTION_TEXT, "-i, --ssh-identity-file", "FILE", "HVDRUN_SSH_IDENTITY_FILE", \
      "ssh_identity_file", 0, 0, NULL, NULL, NULL, CONFIG_START, \
      "Log in with this private key.") \
    X(const char *, rsh, OPTION_TEXT, "--rsh", "COMMAND", "HVDRUN_RSH", "rsh", \
      0, 0, NULL, NULL, NULL, CONFIG_START, \
      "Reach hosts by this command instead of the built-in SSH, as in 'ssh -J gateway' or 'kubectl exec -i'. " \
      "hvdrun replaces {host}, {user} and {port}. Without {host} it adds the host's name at the end. The word srun " \
      "alone starts a step of the Slurm job; inside a Slurm job it is the default.") \
    X(const char *, agent_path, OPTION_TEXT, "--agent-path", "FILE", "HVDRUN_AGENT_PATH", "agent_path", \
      0, 0, NULL, NULL, NULL, CONFIG_START, \
      "The hvdagent to run on every host. Without this option: the one beside hvdrun, then the one on PATH.") \
    X(int, agent, OPTION_CHOICE, "--agent", "KIND", "HVDRUN_AGENT", "agent", \
      0, 0, "auto|managed|job", "auto", NULL, CONFIG_START, \
      "The agent that supervises the ranks of a host. managed: the host's managed agent, which may refuse. job: an " \
      "agent for this job alone. auto: the managed agent, if the host has one.") \
    X(int64_t, wait_ms, OPTION_SECONDS, "--wait", "[=SECONDS]", "HVDRUN_WAIT", "wait", \
      1, 31536000, "no|forever", "no", NULL, CONFIG_START, \
      "Wait in a queue if a managed agent has too few free slots or GPUs, instead of being refused. SECONDS limits " \
      "the whole wait; without a value the wait has no limit. --start-timeout counts from the end of the wait. " \
      "Several hosts are asked one after the other, in an order that does not depend on their names, so that two " \
      "jobs never wait for each other.") \
    X(int64_t, priority, OPTION_INTEGER, "--priority", "N", "HVDRUN_PRIORITY", "priority", \
      0, 100, NULL, "50", NULL, CONFIG_START, \
      "Among waiting jobs, those with a higher priority come first; those with the same priority, in order of " \
      "arrival. Every user may ask for the default or less. Root may ask for more, and so may users whom the " \
      "managed agent's max_priority allows it.") \
    X(int, send_agent, OPTION_MODE, "--send-agent", "[=HOW]", "HVDRUN_SEND_AGENT", "send_agent", \
      0, 0, "no|job|cache", "no", NULL, CONFIG_START, \
      "Copy hvdagent to hosts that have none or another version, if they are of hvdrun's platform. job: to a " \
      "directory that is removed at the end. cache: to ~/.cache/hvd, for later jobs too.") \
    X(const char *, job_name, OPTION_TEXT, "--job-name", "NAME", "HVDRUN_JOB_NAME", "job_name", \
      0, 0, NULL, NULL, NULL, CONFIG_START, \
      "Begin the job's name with NAME: 1 to 32 of a-z, 0-9 and -. hvdctl takes NAME for the job.") \
    X(int64_t, start_timeout_ms, OPTION_SECONDS, "--start-timeout", "SECONDS", "HVDRUN_START_TIMEOUT, HOROVOD_START_TIMEOUT", "start_timeout", \
      1, 86400, NULL, "30", NULL, CONFIG_START, \
      "End the job if not all workers have started within this time. Until then hvdrun looks up a host's name " \
      "again and again if no name server answers.") \
    X(int64_t, resolve_timeout_ms, OPTION_SECONDS, "--resolve-timeout", "SECONDS", "HVDRUN_RESOLVE_TIMEOUT", \
      "resolve_timeout", 0, 86400, NULL, "3", NULL, CONFIG_START, \
      "Look up a host's name that does not exist again for this time, then end the job. The name of a pod that is " \
      "being made may need more.") \
    X(const char *, network_interfaces, OPTION_TEXT, "--network-interface, --network-interfaces", "LIST", \
      "HVDRUN_NETWORK_INTERFACES", "network_interfaces", 0, 0, NULL, NULL, NULL, CONFIG_START, \
      "Interfaces for traffic between hosts, separated by commas: names (eth0), networks (10.0.0.0/8), exclusions " \
      "(^docker0).") \
    X(bool, encrypt, OPTION_FLAG, "--encrypt", NULL, "HVDRUN_ENCRYPT", "encrypt", 0, 0, NULL, NULL, NULL, CONFIG_START, \
      "Encrypt the links between the hosts of the job: AES-128-GCM behind a TLS 1.3 handshake with the job's key. An " \
      "engine then carries about 2 GB/s each way. Without this option the links are only authenticated. Sockets that programs open themselves (MPI, NCCL, Gloo) are not encrypted.") \
    X(const char *, port_range, OPTION_TEXT, "--port-range", "LOW-HIGH", "HVDRUN_PORT_RANGE", "port_range", \
      0, 0, NULL, NULL, NULL, CONFIG_START, \
      "Listen on these TCP ports only, for example because a firewall opens no others. The range holds for all " \
      "ports that other hosts connect to: the links between hosts, MASTER_PORT and others that are chosen for " \
      "workers. A single number means one port.") \
    X(const char *, output_filename, OPTION_TEXT, "--output-filename", "NAME", "HVDRUN_OUTPUT_FILENAME", \
      "output_filename", 0, 0, NULL, NULL, NULL, CONFIG_OUTPUT, \
      "Write the output of every rank to NAME/rank.N/stdout and stderr as well. A NAME with % is a pattern for the " \
      "files: %r rank, %h host, %n number of the host, %j job, %s stdout or stderr, %% a %. Without %s the names " \
      "get .out and .err at the end.") \
    X(const char *, show_rank, OPTION_TEXT, "--show-rank", "LIST", "HVDRUN_SHOW_RANK", "show_rank", \
      0, 0, NULL, NULL, NULL, CONFIG_OUTPUT, \
      "Show the output of these ranks only, as in 0,2-5. The files of --output-filename still get the output of " \
      "all ranks.") \
    X(bool, print_exit_codes, OPTION_FLAG, "--print-exit-codes", NULL, "HVDRUN_PRINT_EXIT_CODES", "print_exit_codes", \
      0, 0, NULL, NULL, NULL, CONFIG_OUTPUT, \
      "Print at the end how every rank ended. Ranks that ended alike share a line.") \
    X(const char *, report, OPTION_TEXT, "--report", "FILE", "HVDRUN_REPORT", "report", \
      0, 0, NULL, NULL, NULL, CONFIG_OUTPUT, \
      "Write a report to FILE when the job has ended: first cause, phases, hosts, late ranks, and for every rank " \
      "its start, end, status, memory, CPU time and bytes of output. As JSON, or with .html at the end of FILE as " \
      "a page for a browser.") \
    X(bool, prefix_timestamp, OPTION_FLAG, "-prefix-timestamp, --prefix-output-with-timestamp", NULL, \
      "HVDRUN_PREFIX_OUTPUT_WITH_TIMESTAMP", "prefix_output_with_timestamp", 0, 0, NULL, NULL, NULL, CONFIG_OUTPUT, \
      "Begin every line of output with the time.") \
    X(int, tag, OPTION_CHOICE, "--tag", "WHAT", "HVDRUN_TAG", "tag", \
      0, 0, "none|rank|host", "none", NULL, CONFIG_OUTPUT, \
      "Begin every line of output with its rank, or with its rank and host. none leaves the output as the workers " \
      "wrote it, for example for a pipe.") \
    X(int, color, OPTION_CHOICE, "--color", "WHEN", "HVDRUN_COLOR", "color", \
      0, 0, "auto|always|never", "auto", NULL, CONFIG_OUTPUT, \
      "Colour the tags of --tag, with a colour for each rank. auto: on a terminal, unless NO_COLOR is set.") \
    X(bool, collapse, OPTION_FLAG, "--collapse", NULL, "HVDRUN_COLLAPSE", "collapse", \
      0, 0, NULL, NULL, NULL, CONFIG_OUTPUT, \
      "Show a line once if several ranks print it within 150 ms, with their ranks before it: [0-2,5] line.") \
    X(int64_t, max_line, OPTION_INTEGER, "--max-line", "BYTES", "HVDRUN_MAX_LINE", "max_line", \
      1024, 1073741824, NULL, "65536", NULL, CONFIG_OUTPUT, \
      "A line of up to so many bytes is never split by the output of another rank. A longer line may be, if its " \
      "rank pauses inside it.") \
    X(int64_t, stdin_rank, OPTION_INTEGER, "--stdin", "RANK", "HVDRUN_STDIN", "stdin", \
      0, CONFIG_RANKS_MAX - 1, "none|all", "0", NULL, CONFIG_OUTPUT, \
      "The rank that gets hvdrun's standard input. The other ranks read /dev/null.") \
    X(bool, pty, OPTION_FLAG, "--pty", NULL, "HVDRUN_PTY", "pty", \
      0, 0, NULL, NULL, NULL, CONFIG_OUTPUT, \
      "Give the rank that gets standard input (rank 0, or the rank of --stdin) a pseudo terminal, for shells, " \
      "debuggers and editors. Every key goes to that rank, ^C too, until it ends.") \
    X(struct option_list, set_env, OPTION_LIST, "-x", "VAR[=VALUE]", "HVDRUN_ENV", "env", \
      0, 0, NULL, NULL, NULL, CONFIG_WORKER, \
      "Give the workers variable VAR, with VALUE or else with hvdrun's own value. PREFIX* stands for all variables " \
      "whose names begin so. May be repeated. Workers get hvdrun's environment anyway, except the rank of another " \
      "launcher and values that are valid on one host only (see hvdrun(1)).") \
    X(struct option_list, unset_env, OPTION_LIST, "--unset", "VAR", "HVDRUN_UNSET", "unset", \
      0, 0, NULL, NULL, NULL, CONFIG_WORKER, \
      "Remove variable VAR, or all PREFIX*, from the environment that workers get from hvdrun. May be repeated. -x " \
      "overrides this option.") \
    X(const char *, wdir, OPTION_TEXT, "--wdir", "DIRECTORY", "HVDRUN_WDIR", "wdir", \
      0, 0, NULL, NULL, NULL, CONFIG_WORKER, \
      "Start the workers in this directory. Without this option: in hvdrun's own directory, which every host must " \
      "then have.") \
    X(bool, wdir_or_home, OPTION_FLAG, "--wdir-or-home", NULL, "HVDRUN_WDIR_OR_HOME", "wdir_or_home", \
      0, 0, NULL, NULL, NULL, CONFIG_WORKER, \
      "On hosts that lack hvdrun's own directory, start the workers in the home directory. --preload does the same.") \
    X(struct option_list, preload, OPTION_LIST, "--preload", "FILE", "HVDRUN_PRELOAD", "preload", \
      0, 0, NULL, NULL, NULL, CONFIG_WORKER, \
      "Copy FILE to every host before the first worker starts, and remove the copy at the end. Workers find it in " \
      "the directory HVD_PRELOAD_DIR, under its name without directories. A command that is FILE, or ./ and that " \
      "name, runs the copy. May be repeated.") \
    X(const char *, propagate_limits, OPTION_TEXT, "--propagate-limits", "LIST", "HVDRUN_PROPAGATE_LIMITS", "propagate_limits", \
      0, 0, NULL, "none", NULL, CONFIG_WORKER, \
      "Give the workers hvdrun's soft resource limits: all, none, or names as in NOFILE,STACK,CORE. A host's hard " \
      "limit is the maximum; hvdrun warns if it is lower.") \
    X(const char *, rendezvous, OPTION_TEXT, "--rendezvous", "LIST", "HVDRUN_RENDEZVOUS", "rendezvous", \
      0, 0, NULL, "auto", NULL, CONFIG_WORKER, \
      "How the workers' libraries find each other: none, or a list separated by commas. The words are env (torch " \
      "and others), pmix (OpenMPI), pmi1 (MPICH), gloo (Horovod), jax, auto (all of these), tf (TF_CONFIG) and " \
      "paddle; see hvd-rendezvous(7).") \
    X(int64_t, timeout_ms, OPTION_SECONDS, "--timeout", "SECONDS", "HVDRUN_TIMEOUT", "timeout", \
      0, 31536000, NULL, "0", NULL, CONFIG_LIFE, \
      "End the job after this time, with exit status 124. Before that hvdrun prints where each rank is, and the reason " \
      "as hvdctl why does. If the " \
      "ranks do not run yet, it prints the hosts that have not answered (see hvdrun(1)). 0: no limit.") \
    X(int, on_failure, OPTION_CHOICE, "--on-failure", "WHAT", "HVDRUN_ON_FAILURE", "on_failure", \
      0, 0, "kill|continue|notify", "kill", NULL, CONFIG_LIFE, \
      "The reaction to a failed rank. kill: the job is ended. continue: the other ranks go on. notify: they go on " \
      "and get SIGUSR1, which ends a program that does not handle it. The exit status is always that of the first " \
      "rank that failed. A lost host, a limit or a signal always ends the job.") \
    X(const char *, forward_signals, OPTION_TEXT, "--forward-signals", "LIST", "HVDRUN_FORWARD_SIGNALS", "forward_signals", \
      0, 0, NULL, "USR1,USR2,WINCH", NULL, CONFIG_LIFE, \
      "The signals that hvdrun only passes on to the workers: names or numbers, or none. hvdrun ignores USR1, USR2 " \
      "and WINCH if they are not in the list. INT, TERM, HUP and QUIT always end the job. TSTP always stops it, " \
      "and CONT continues it.") \
    X(bool, stop_on_exec, OPTION_FLAG, "--stop-on-exec", NULL, "HVDRUN_STOP_ON_EXEC", "stop_on_exec", \
      0, 0, NULL, NULL, NULL, CONFIG_LIFE, \
      "Stop every worker before the first instruction of its program, and print its host and process, so that a " \
      "debugger can be attached (gdb -p). SIGCONT to a worker continues it; SIGCONT to hvdrun continues all.") \
    X(int64_t, max_restarts, OPTION_INTEGER, "--max-restarts", "N", "HVDRUN_MAX_RESTARTS", "max_restarts", \
      0, 1000000, NULL, "0", NULL, CONFIG_LIFE, \
      "Start the whole job again after a rank or a host has failed, at most N times. A lost host is left out if " \
      "the other hosts have enough slots. An elastic job starts again only when too few ranks are left.") \
    X(int64_t, min_np, OPTION_INTEGER, "--min-np, --min-num-proc", "N", "HVDRUN_MIN_NP", "min_np, elastic.min_np", \
      1, CONFIG_RANKS_MAX, NULL, NULL, NULL, CONFIG_ELASTIC, \
      "Makes the job elastic: it goes on while at least N ranks are left, and waits for hosts when fewer are. " \
      "Without this option: as many as -np says. See hvdrun(1), ELASTIC JOBS.") \
    X(int64_t, max_np, OPTION_INTEGER, "--max-np, --max-num-proc", "N", "HVDRUN_MAX_NP", "max_np, elastic.max_np", \
      1, CONFIG_RANKS_MAX, NULL, NULL, NULL, CONFIG_ELASTIC, \
      "Makes the job elastic: it grows up to N ranks when hosts have free slots. Without this option: up to the " \
      "slots of all hosts.") \
    X(const char *, host_discovery_script, OPTION_TEXT, "--host-discovery-script", "FILE", "HVDRUN_HOST_DISCOVERY_SCRIPT", \
      "host_discovery_script, elastic.host_discovery_script", 0, 0, NULL, NULL, "the hosts", CONFIG_ELASTIC, \
      "Makes the job elastic: FILE prints the hosts, one a line, as host or host:slots. hvdrun runs it once a " \
      "second. If it fails at the start, the job fails; later its last answer stays valid.") \
    X(int64_t, elastic_timeout_ms, OPTION_SECONDS, "--elastic-timeout", "SECONDS", "HVDRUN_ELASTIC_TIMEOUT, HOROVOD_ELASTIC_TIMEOUT", \
      "elastic_timeout, elastic.elastic_timeout", 1, 31536000, NULL, "600", NULL, CONFIG_ELASTIC, \
      "How long an elastic job waits for enough slots, and how long a rank may take to enter the next membership. " \
      "After that the job, or the rank, is ended.") \
    X(int64_t, reset_limit, OPTION_INTEGER, "--reset-limit", "N", "HVDRUN_RESET_LIMIT", "reset_limit, elastic.reset_limit", \
      0, 1000000, "none", "none", NULL, CONFIG_ELASTIC, \
      "End an elastic job when its ranks have changed more than N times. In a job that is not elastic it means " \
      "--max-restarts N, unless that is given.") \
    X(struct option_range, cooldown, OPTION_RANGE, "--blacklist-cooldown-range", "LOW HIGH", "HVDRUN_BLACKLIST_COOLDOWN_RANGE", \
      "blacklist_cooldown_range, elastic.blacklist_cooldown_range", 1, 3600, NULL, NULL, NULL, CONFIG_ELASTIC, \
      "A host on which a rank has failed gets no new ranks for LOW seconds, twice as long after each further " \
      "failure, at most HIGH. Without this option it gets none any more.") \
    X(int64_t, grace_ms, OPTION_SECONDS, "--grace", "SECONDS", "HVDRUN_GRACE", "grace", \
      0, 86400, NULL, "5", NULL, CONFIG_LIFE, \
      "Time between SIGTERM and SIGKILL when the job is ended.") \
    X(int64_t, heartbeat_timeout_ms, OPTION_SECONDS, "--heartbeat-timeout", "SECONDS", "HVDRUN_HEARTBEAT_TIMEOUT", \
      "heartbeat_timeout", 1, 86400, NULL, "15", NULL, CONFIG_LIFE, \
      "A host that is silent for this time is lost, and the job ends.") \
    X(int, gpu_placement, OPTION_CHOICE, "--gpu-placement", "WHERE", "HVDRUN_GPU_PLACEMENT", "gpu_placement", \
      0, 0, "worker|engine", "worker", NULL, CONFIG_ENGINE, \
      "The process that calls NCCL for tensors on GPUs. worker: each worker, for its own tensors. engine: the " \
      "collectives engine, for all workers of its host. See GPUS.") \
    X(int64_t, gpu_connect_timeout_ms, OPTION_SECONDS, "--gpu-connect-timeout", "SECONDS", "HVDRUN_GPU_CONNECT_TIMEOUT", \
      "gpu_connect_timeout", 1, 86400, NULL, "300", NULL, CONFIG_ENGINE, \
      "Time that NCCL has to connect the ranks of a process set. After that, their tensors on GPUs go through host " \
      "memory as long as the set exists. See GPUS.") \
    X(bool, gpu_require_nccl, OPTION_FLAG, "--gpu-require-nccl", NULL, "HVDRUN_GPU_REQUIRE_NCCL", "gpu_require_nccl", \
      0, 0, NULL, NULL, NULL, CONFIG_ENGINE, \
      "End the job if ranks cannot use NCCL for their tensors on GPUs, instead of printing a warning. See GPUS.") \
    X(const char *, timeline_filename, OPTION_TEXT, "--timeline-filename", "FILE", "HVDRUN_TIMELINE_FILENAME, HOROVOD_TIMELINE", \
      "timeline_filename, timeline.filename", 0, 0, NULL, NULL, NULL, CONFIG_ENGINE, \
      "Record what every rank and every host's engine does with each tensor, for chrome://tracing or Perfetto. " \
      "Each of them writes up to 256 MiB: FILE with .RANK (.WORKER in an elastic job) or .engine.HOST before the extension, or in place of %r. At " \
      "the end hvdrun makes them one FILE here, unless FILE has %r. Hosts that do not share the directory send theirs; without that directory here, hvdrun says where they lie.") \
    X(bool, timeline_mark_cycles, OPTION_FLAG, "--timeline-mark-cycles", NULL, "HVDRUN_TIMELINE_MARK_CYCLES, HOROVOD_TIMELINE_MARK_CYCLES", \
      "timeline_mark_cycles, timeline.mark_cycles", 0, 0, NULL, NULL, "the marks of cycles", CONFIG_ENGINE, \
      "Mark in those files when a rank, or a turn of the engine, begins to execute operations.") \
    X(bool, no_timeline_mark_cycles, OPTION_FLAG, "--no-timeline-mark-cycles", NULL, NULL, NULL, \
      0, 0, NULL, NULL, "the marks of cycles", CONFIG_ENGINE, \
      "Write no such marks, even when HOROVOD_TIMELINE_MARK_CYCLES is set.") \
    X(const char *, flight_record, OPTION_TEXT, "--flight-record", "DIRECTORY", "HVDRUN_FLIGHT_RECORD", "flight_record", \
      0, 0, NULL, NULL, NULL, CONFIG_ENGINE, \
      "Write the last operations of each rank to DIRECTORY/JOB.flight.json when the job ends. Without this option " \
      "they are written when the job fails, to ~/.local/state/hvdrun. See FLIGHT RECORDER.") \
    X(bool, stall_check, OPTION_FLAG, "--stall-check", NULL, NULL, NULL, \
      0, 0, NULL, NULL, "the stall check", CONFIG_ENGINE, \
      "Warn about stalled operations, even when HOROVOD_STALL_CHECK_DISABLE is set.") \
    X(bool, no_stall_check, OPTION_FLAG, "--no-stall-check", NULL, "!HVDRUN_STALL_CHECK, HOROVOD_STALL_CHECK_DISABLE", \
      "!stall_check, !stall_check.enabled", \
      0, 0, NULL, NULL, "the stall check", CONFIG_ENGINE, \
      "Do not look for stalled operations: neither warn nor end the job.") \
    X(int64_t, stall_warning_ms, OPTION_SECONDS, "--stall-check-warning-time-seconds", "SECONDS", \
      "HVDRUN_STALL_CHECK_WARNING_TIME_SECONDS, HOROVOD_STALL_CHECK_TIME_SECONDS", "stall_check_warning_time_seconds, stall_check.warning_time_seconds", \
      0, 31536000, NULL, "60", NULL, CONFIG_ENGINE, \
      "Warn when some ranks have waited for this time in an operation that others have not called. The warning " \
      "names the others. Once a minute hvdrun looks where they are, as hvdctl why does, and says it. 0: never.") \
    X(int64_t, stall_shutdown_ms, OPTION_SECONDS, "--stall-check-shutdown-time-seconds", "SECONDS", \
      "HVDRUN_STALL_CHECK_SHUTDOWN_TIME_SECONDS, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "stall_check_shutdown_time_seconds, stall_check.shutdown_time_seconds", \
      0, 31536000, NULL, "0", NULL, CONFIG_ENGINE, \
      "End the job with exit status 125 when ranks have waited for others for this time. In an elastic job the " \
      "others are ended, and the job goes on. 0: never.") \
    X(bool, hierarchical_allreduce, OPTION_FLAG, "--hierarchical-allreduce", NULL, NULL, NULL, \
      0, 0, NULL, NULL, "how hosts allreduce", CONFIG_ENGINE, \
      "Reduce among the ranks of each host first, then between the hosts, so that a host sends as much as one " \
      "rank. This is the default, unlike in Horovod.") \
    X(bool, no_hierarchical_allreduce, OPTION_FLAG, "--no-hierarchical-allreduce", NULL, \
      "!HVDRUN_HIERARCHICAL_ALLREDUCE, !HOROVOD_HIERARCHICAL_ALLREDUCE", \
      "!hierarchical_allreduce, !params.hierarchical_allreduce", 0, 0, NULL, NULL, "how hosts allreduce", CONFIG_ENGINE, \
      "Reduce every element in the order of ranks, as on one host, so that a sum has the same bits wherever its " \
      "ranks are. The traffic grows with the ranks of a host, and small tensors do not travel together (see " \
      "REPRODUCIBLE SUMS).") \
    X(bool, autotune, OPTION_FLAG, "--autotune", NULL, "HVDRUN_AUTOTUNE, HOROVOD_AUTOTUNE", "autotune, autotune.enabled", \
      0, 0, NULL, NULL, "autotune", CONFIG_ENGINE, \
      "Search, while the job runs, for the values of the engine's parameters that move most bytes per second " \
      "between its hosts, and keep them. Results do not depend on them. On one host there is nothing to tune.") \
    X(bool, no_autotune, OPTION_FLAG, "--no-autotune", NULL, NULL, NULL, \
      0, 0, NULL, NULL, "autotune", CONFIG_ENGINE, \
      "Do not tune, even when HOROVOD_AUTOTUNE is set.") \
    X(const char *, autotune_log_file, OPTION_TEXT, "--autotune-log-file", "FILE", "HVDRUN_AUTOTUNE_LOG_FILE, HOROVOD_AUTOTUNE_LOG", \
      "autotune_log_file, autotune.log_file", 0, 0, NULL, NULL, NULL, CONFIG_ENGINE, \
      "The first host writes a line for each sample to FILE: the values and the bytes per microsecond. The last " \
      "line has the values that stay. Values are separated by commas; see AUTOTUNE.") \
    X(int64_t, autotune_warmup_samples, OPTION_INTEGER, "--autotune-warmup-samples", "N", \
      "HVDRUN_AUTOTUNE_WARMUP_SAMPLES, HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "autotune_warmup_samples, autotune.warmup_samples", 0, 1000000, NULL, "3", NULL, CONFIG_ENGINE, \
      "Discard the first N measurements.") \
    X(int64_t, autotune_steps_per_sample, OPTION_INTEGER, "--autotune-steps-per-sample", "N", \
      "HVDRUN_AUTOTUNE_STEPS_PER_SAMPLE, HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "autotune_steps_per_sample, autotune.steps_per_sample", 1, 1000000, NULL, "10", NULL, CONFIG_ENGINE, \
      "Steps in one measurement: the measurement ends when the same tensor has come so many times. A sample is the " \
      "median of five measurements.") \
    X(int64_t, autotune_samples, OPTION_INTEGER, "--autotune-bayes-opt-max-samples", "N", \
      "HVDRUN_AUTOTUNE_BAYES_OPT_MAX_SAMPLES, HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "autotune_bayes_opt_max_samples, autotune.bayes_opt_max_samples", 1, 1000, NULL, "20", NULL, \
      CONFIG_ENGINE, \
      "Largest number of samples. The search goes from the best values to their neighbours; the name of the option " \
      "is horovodrun's.") \
    X(const char *, autotune_noise, OPTION_TEXT, "--autotune-gaussian-process-noise", "NUMBER", \
      "HVDRUN_AUTOTUNE_GAUSSIAN_PROCESS_NOISE, HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "autotune_gaussian_process_noise, autotune.gaussian_process_noise", 0, 0, NULL, NULL, NULL, \
      CONFIG_ENGINE, \
      "Only Horovod's own workers use it; they get it in the variable. hvdrun's engine measures how much its " \
      "samples vary.") \
    X(int64_t, fusion_threshold_mb, OPTION_INTEGER, "--fusion-threshold-mb", "N", "HVDRUN_FUSION_THRESHOLD_MB", \
      "fusion_threshold_mb, params.fusion_threshold_mb", \
      0, 2048, "auto", "auto", "the fusion threshold", CONFIG_ENGINE, \
      "Between hosts, allreduces that are ready together travel as one, up to N MiB. On GPUs the small tensors of " \
      "a group travel as one, up to 4 MiB of them. 0: each tensor travels alone. auto: 1 MiB, which was fastest, " \
      "or the value that --autotune finds.") \
    X(int64_t, fusion_threshold, OPTION_INTEGER, "--fusion-threshold", "BYTES", \
      "HVDRUN_FUSION_THRESHOLD, HOROVOD_FUSION_THRESHOLD", \
      "fusion_threshold", 0, 2147483648, "auto", "auto", "the fusion threshold", CONFIG_ENGINE, \
      "The same threshold in bytes.") \
    X(int64_t, cache_capacity, OPTION_INTEGER, "--cache-capacity", "N", \
      "HVDRUN_CACHE_CAPACITY, HOROVOD_CACHE_CAPACITY", "cache_capacity, params.cache_capacity", \
      0, 1048576, "auto", "auto", NULL, CONFIG_ENGINE, \
      "Between hosts, the first N tensor names of each process set are sent as numbers after their first use. 0: " \
      "names and shapes are always sent in full. auto: 16384 for the world, 1024 for other sets.") \
    X(int64_t, cycle_time_us, OPTION_MILLISECONDS, "--cycle-time-ms", "MS", \
      "HVDRUN_CYCLE_TIME_MS, HOROVOD_CYCLE_TIME", "cycle_time_ms, params.cycle_time_ms", \
      0, 10000, NULL, "0", NULL, CONFIG_ENGINE, \
      "Between hosts, let an allreduce wait this time for others to travel with, unless they fill the threshold " \
      "before. 0: send at once if the network has room, and gather what comes while it has none. Nothing polls " \
      "here, so Horovod's default of 1 has no use.") \
    X(int64_t, num_nccl_streams, OPTION_INTEGER, "--num-nccl-streams", "N", \
      "HVDRUN_NUM_NCCL_STREAMS, HOROVOD_NUM_NCCL_STREAMS", "num_nccl_streams, library_options.num_nccl_streams", \
      1, 1024, NULL, NULL, NULL, CONFIG_HOROVOD, \
      "Number of NCCL streams that a worker of Horovod uses.") \
    X(const char *, thread_affinity, OPTION_TEXT, "--thread-affinity", "CPU,...", \
      "HVDRUN_THREAD_AFFINITY, HOROVOD_THREAD_AFFINITY", "thread_affinity, library_options.thread_affinity", \
      0, 0, NULL, NULL, NULL, CONFIG_HOROVOD, \
      "The processor of each local rank's background thread in Horovod.") \
    X(int64_t, gloo_timeout_seconds, OPTION_INTEGER, "--gloo-timeout-seconds", "N", \
      "HVDRUN_GLOO_TIMEOUT_SECONDS, HOROVOD_GLOO_TIMEOUT_SECONDS", \
      "gloo_timeout_seconds, library_options.gloo_timeout_seconds", \
      1, 86400, NULL, NULL, NULL, CONFIG_HOROVOD, \
      "Seconds that Horovod's Gloo waits for the other workers.") \
    X(bool, hierarchical_allgather, OPTION_FLAG, "--hierarchical-allgather", NULL, "HVDRUN_HIERARCHICAL_ALLGATHER, HOROVOD_HIERARCHICAL_ALLGATHER", "hierarchical_allgather, params.hierarchical_allgather", \
      0, 0, NULL, NULL, "hierarchical allgather", CONFIG_HOROVOD, \
      "Let Horovod's allgather combine the ranks of each host first. (hvdrun's own engine always does so.)") \
    X(bool, no_hierarchical_allgather, OPTION_FLAG, "--no-hierarchical-allgather", NULL, NULL, NULL, \
      0, 0, NULL, NULL, "hierarchical allgather", CONFIG_HOROVOD, \
      "Turn this off, even when HOROVOD_HIERARCHICAL_ALLGATHER is set.") \
    X(bool, torus_allreduce, OPTION_FLAG, "--torus-allreduce", NULL, "HVDRUN_TORUS_ALLREDUCE, HOROVOD_TORUS_ALLREDUCE", "torus_allreduce, params.torus_allreduce", \
      0, 0, NULL, NULL, "torus allreduce", CONFIG_HOROVOD, \
      "Let Horovod's allreduce work in two dimensions, within and between hosts.") \
    X(bool, no_torus_allreduce, OPTION_FLAG, "--no-torus-allreduce", NULL, NULL, NULL, \
      0, 0, NULL, NULL, "torus allreduce", CONFIG_HOROVOD, \
      "Turn this off, even when HOROVOD_TORUS_ALLREDUCE is set.") \
    X(bool, mpi_threads_disable, OPTION_FLAG, "--mpi-threads-disable", NULL, "HVDRUN_MPI_THREADS_DISABLE, HOROVOD_MPI_THREADS_DISABLE", "mpi_threads_disable, library_options.mpi_threads_disable", \
      0, 0, NULL, NULL, "threads in MPI", CONFIG_HOROVOD, \
      "Let Horovod ask MPI for no support of threads.") \
    X(bool, no_mpi_threads_disable, OPTION_FLAG, "--no-mpi-threads-disable", NULL, NULL, NULL, \
      0, 0, NULL, NULL, "threads in MPI", CONFIG_HOROVOD, \
      "Turn this off, even when HOROVOD_MPI_THREADS_DISABLE is set.") \
    X(bool, log_with_timestamp, OPTION_FLAG, "--log-with-timestamp, --no-log-hide-timestamp", NULL, "HVDRUN_LOG_WITH_TIMESTAMP", \
      "log_with_timestamp", 0, 0, NULL, NULL, "the time in the log", CONFIG_HOROVOD, \
      "Print the time in Horovod's log lines, even when HOROVOD_LOG_HIDE_TIME is set. (hvdrun's own lines have no " \
      "time.)") \
    X(bool, log_without_timestamp, OPTION_FLAG, "--log-without-timestamp, --log-hide-timestamp", NULL, \
      "HVDRUN_LOG_WITHOUT_TIMESTAMP, HOROVOD_LOG_HIDE_TIME", "log_without_timestamp, !logging.with_timestamp", \
      0, 0, NULL, NULL, "the time in the log", CONFIG_HOROVOD, \
      "Print no time in Horovod's log lines.") \
    X(bool, tcp, OPTION_FLAG, "--tcp", NULL, "HVDRUN_TCP", "tcp", \
      0, 0, NULL, NULL, NULL, CONFIG_HOROVOD, \
      "Set NCCL_IB_DISABLE=1 for NCCL. hvdrun's own engine sends by TCP anyway; for Open MPI use -x OMPI_MCA_pml=ob1 -x OMPI_MCA_btl=tcp,self.") \
    X(bool, mpi, OPTION_FLAG, "--mpi", NULL, "HVDRUN_MPI", "mpi", \
      0, 0, NULL, NULL, "the controller", CONFIG_NEEDLESS, \
      "There is nothing to choose: programs of MPI, Gloo and libhvd are all started in the same way.") \
    X(bool, gloo, OPTION_FLAG, "--gloo", NULL, "HVDRUN_GLOO", "gloo", \
      0, 0, NULL, NULL, "the controller", CONFIG_NEEDLESS, \
      "There is nothing to choose, as with --mpi.") \
    X(bool, jsrun, OPTION_FLAG, "--jsrun", NULL, "HVDRUN_JSRUN", "jsrun", \
      0, 0, NULL, NULL, "the controller", CONFIG_NEEDLESS, \
      "Inside an LSF job hvdrun takes the hosts of that job without being asked.") \
    X(bool, disable_cache, OPTION_FLAG, "--disable-cache", NULL, "HVDRUN_DISABLE_CACHE", "disable_cache", \
      0, 0, NULL, NULL, NULL, CONFIG_NEEDLESS, \
      "hvdrun keeps no check of a host for later.") \
    X(const char *, mpi_args, OPTION_TEXT, "--mpi-args", "ARGS", "HVDRUN_MPI_ARGS", "mpi_args", \
      0, 0, NULL, NULL, NULL, CONFIG_NEEDLESS, \
      "hvdrun starts no mpirun that could get them. hvdrun-flags(7) has hvdrun's own options beside mpirun's.") \
    X(const char *, binding_args, OPTION_TEXT, "--binding-args", "ARGS", "HVDRUN_BINDING_ARGS", "binding_args", \
      0, 0, NULL, NULL, NULL, CONFIG_NEEDLESS, \
      "hvdrun starts no mpirun that could get them. hvdrun-flags(7) has hvdrun's own options for binding.") \
    X(int, log_level, OPTION_CHOICE, "--log-level", "LEVEL", "HVDRUN_LOG_LEVEL", "log_level, logging.level", \
      0, 0, "trace|debug|info|warning|error|fatal", "warning", NULL, CONFIG_ABOUT, \
      "Lowest level of the messages that hvdrun and its agents write.") \
    X(bool, verbose, OPTION_FLAG, "--verbose", NULL, "HVDRUN_VERBOSE", "verbose", \
      0, 0, NULL, NULL, NULL, CONFIG_ABOUT, \
      "Print what happens: --log-level info, unless the level is lower already.") \
    X(bool, check_build, OPTION_ACTION, "-cb, --check-build", NULL, NULL, NULL, \
      0, 0, NULL, NULL, NULL, CONFIG_ABOUT, \
      "Show the features of this hvdrun, the libraries that it finds, and the versions of the GPU software on this " \
      "host.") \
    X(bool, bash_completion, OPTION_ACTION, "--bash-completion", NULL, NULL, NULL, \
      0, 0, NULL, NULL, NULL, CONFIG_ABOUT, \
      "Print a script that lets bash complete these options: source <(hvdrun --bash-completion).") \
    X(bool, zsh_completion, OPTION_ACTION, "--zsh-completion", NULL, NULL, NULL, \
      0, 0, NULL, NULL, NULL, CONFIG_ABOUT, \
      "Print the same for zsh, as a file _hvdrun in a directory of its fpath.") \
    X(bool, fish_completion, OPTION_ACTION, "--fish-completion", NULL, NULL, NULL, \
      0, 0, NULL, NULL, NULL, CONFIG_ABOUT, \
      "Print the same for fish: hvdrun --fish-completion | source.") \
    X(bool, version, OPTION_ACTION, "-v, --version", NULL, NULL, NULL, \
      0, 0, NULL, NULL, NULL, CONFIG_ABOUT, \
      "Show the version.") \
    X(bool, help, OPTION_ACTION, "-h, --help", NULL, NULL, NULL, \
      0, 0, NULL, NULL, NULL, CONFIG_ABOUT, \
      "Show this text.")
/* clang-format on */

enum config_dry_run { CONFIG_DRY_RUN_NO, CONFIG_DRY_RUN_TEXT, CONFIG_DRY_RUN_JSON }; /* --dry-run */
enum config_agent { AGENT_AUTO, AGENT_MANAGED, AGENT_JOB };                          /* --agent */
enum config_tag { CONFIG_TAG_NONE, CONFIG_TAG_RANK, CONFIG_TAG_HOST };               /* --tag */
enum config_bind { CONFIG_BIND_AUTO, CONFIG_BIND_NONE }; /* --bind-to; then core, numa, socket */
enum config_color { CONFIG_COLOR_AUTO, CONFIG_COLOR_ALWAYS, CONFIG_COLOR_NEVER }; /* --color */
enum config_on_failure { CONFIG_ON_FAILURE_KILL, CONFIG_ON_FAILURE_CONTINUE, CONFIG_ON_FAILURE_NOTIFY };
enum config_stdin { CONFIG_STDIN_NONE = -1, CONFIG_STDIN_ALL = -2 }; /* --stdin; else the rank */

struct config {
#define CONFIG_FIELD(ctype, field, ...) ctype field;
    CONFIG_OPTIONS(CONFIG_FIELD)
#undef CONFIG_FIELD
    /* num_proc: of all programs; 0: one for every slot. ssh_port 0: not given. timeout_ms 0: none. log_level:
     * enum log_level. Texts are NULL when not given, and point into argv or the environment. */
    struct programs programs;
    char *const *words;      /* argv */
    struct settings file;    /* of --config-file */
    struct port_range ports; /* --port-range */
    struct placement placement;
    uint64_t forwarded;      /* of --forward-signals: signal n is bit n - 1 */
    bool given[OPTIONS_MAX]; /* by row of the table: a flag, a variable or the file has set the option */
    bool elastic;            /* one of --min-np, --max-np and --host-discovery-script was given */
};

/* The table with names; for help and the manual page. */
extern const struct options_program config_program;
/* Flags of torchrun, mpirun and hydra that hvdrun does not take, each with what takes its place; ends with
 * NULLs (foreign_flags.c). */
extern const struct option_refused foreign_flags[];

/* Parses and checks the whole command line; -1 with *e (ERR_USAGE) and nothing to free. When one of help,
 * version and check_build is set, the rest was not checked. */
int config_parse(struct config *config, int argc, char *const argv[], char *const envp[], struct err *e);
/* Was this field of *config set by a flag, a variable or the file, be it to its default? */
bool config_given(const struct config *config, const void *field);
/* The source of config->hosts, for messages: "-H/--hosts", or a variable, or a line of a file. */
void config_hosts_from(const struct config *config, char *const envp[], char *name, size_t size);
void config_free(struct config *config);

/* ---- help ---------------------------------------------------------------------------------------------- */

/* hvdrun help [TOPIC]. `words`, NULL at the end, are those behind `help`. Shows the page by becoming man(1);
 * where there is none, or no page, writes the topic's short text to `out`. -1 with *e (ERR_USAGE): there is
 * no such topic. */
int help_show(char *const words[], FILE *out, struct err *e);
