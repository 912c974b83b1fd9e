/* The configuration of a managed agent: /etc/hvd/agent.conf, one table for its keys and the options of
 * `hvdagent daemon`.
 *
 * It is read when the daemon starts and when it is asked to reload (SIGHUP); a file that is wrong changes
 * nothing then. Root must be its owner, and no other user may write it. No variable of the environment has a
 * say. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/daemon/protocol/wire.h"
#include "common/base/err.h"
#include "common/options/options.h"
#include "common/options/settings.h"

#define DAEMON_CONFIG "/etc/hvd/agent.conf"

/* X(C type, field, type, flags, metavar, yaml, min, max, words, default, group, help) */
/* clang-format off */
#define DAEMON_OPTIONS(X) \
    X(bool, help, OPTION_ACTION, "-h, --help", NULL, NULL, 0, 0, NULL, NULL, "General", \
      "Show this text.") \
    X(const char *, file, OPTION_TEXT, "--config", "FILE", NULL, 0, 0, NULL, NULL, "General", \
      "Read FILE instead of " DAEMON_CONFIG ".") \
    X(const char *, directory, OPTION_TEXT, "--directory", "DIR", NULL, 0, 0, NULL, DAEMON_DIRECTORY, "General", \
      "Directory of the socket and the leases.") \
    X(int, log_level, OPTION_CHOICE, "--log-level", "LEVEL", "log_level", 0, 0, \
      "trace|debug|info|warning|error|fatal", "info", "General", \
      "Lowest level of the messages that the daemon writes.") \
    X(bool, metrics, OPTION_FLAG, "--metrics", NULL, "metrics", 0, 0, NULL, NULL, "General", \
      "Serve figures about slots and jobs to Prometheus: HTTP on the unix socket metrics.sock in the directory. " \
      "Every user of this node may read them.") \
    X(int64_t, slots, OPTION_INTEGER, "--slots", "N", "slots", 0, 1000000, NULL, "0", "Slots and jobs", \
      "Slots of this node; each belongs to one job at a time. 0: one slot for each GPU, or on a node without GPUs " \
      "one for each processor.") \
    X(bool, share, OPTION_FLAG, "--share-slots", NULL, "share_slots", 0, 0, NULL, NULL, "Slots and jobs", \
      "Give the slots to any number of jobs at once. One job still gets no more slots than there are.") \
    X(int64_t, max_jobs, OPTION_INTEGER, "--max-jobs", "N", "max_jobs", 0, 4096, NULL, "0", "Slots and jobs", \
      "Largest number of jobs that run at once. 0: as many as the slots allow, 4096 at most.") \
    X(int64_t, max_jobs_per_user, OPTION_INTEGER, "--max-jobs-per-user", "N", "max_jobs_per_user", \
      0, 4096, NULL, "0", "Slots and jobs", \
      "Largest number of jobs of one user that run at once. 0: no limit.") \
    X(int64_t, max_waiting, OPTION_INTEGER, "--max-waiting", "N", "max_waiting", 0, 1024, NULL, "128", "Slots and jobs", \
      "Largest number of jobs that wait for slots (hvdrun --wait). One user may have half of them. 0: no job may " \
      "wait.") \
    X(int64_t, max_priority, OPTION_INTEGER, "--max-priority", "N", "max_priority", 0, 100, NULL, "50", "Slots and jobs", \
      "The highest priority that users other than root may ask for.") \
    X(const char *, drain, OPTION_TEXT, "--drain", "REASON", "drain", 0, 0, NULL, NULL, "Slots and jobs", \
      "Accept no new jobs, and give this reason to users who ask. Running jobs go on.") \
    X(struct option_list, users, OPTION_LIST, "--user", "USER", "users", 0, 0, NULL, NULL, "Users", \
      "Users who may run jobs: names or numbers. Without users and groups: all users. Root always may.") \
    X(struct option_list, groups, OPTION_LIST, "--group", "GROUP", "groups", 0, 0, NULL, NULL, "Users", \
      "Groups whose members may run jobs. The kernel says which groups the asking process has.") \
    X(const char *, slice, OPTION_TEXT, "--slice", "SLICE", "slice", 0, 0, NULL, "hvd.slice", "How jobs run", \
      "The systemd slice in which jobs run. Limits for all jobs together are set there.") \
    X(const char *, pam, OPTION_TEXT, "--pam", "SERVICE", "pam", 0, 0, NULL, NULL, "How jobs run", \
      "Open a PAM session of this service for each job; it sets the limits of limits.conf(5). The service must not " \
      "use pam_systemd, which would move the job elsewhere.") \
    X(int64_t, tasks_max, OPTION_INTEGER, "--tasks-max", "N", "tasks_max", 0, INT64_C(4194304), NULL, "0", "How jobs run", \
      "Largest number of processes and threads of one job. 0: no limit except that of the slice.") \
    X(struct option_list, gpu_checks, OPTION_LIST, "--gpu-check", "WHAT", "gpu_checks", 0, 0, NULL, NULL, "GPUs", \
      "Faults of a GPU that keep new jobs away from the node: driver (it is gone or does not answer), temperature, " \
      "ecc (uncorrected memory errors), xid (faults in the kernel's log). Without this option: all of them. none: " \
      "after the start only hvdctl gpus asks the GPUs.") \
    X(int64_t, gpu_interval_ms, OPTION_SECONDS, "--gpu-interval", "SECONDS", "gpu_interval", \
      1, 86400, NULL, "60", "GPUs", \
      "Time between two checks of the GPUs. On a driver without persistence mode each check wakes them up.") \
    X(int64_t, gpu_max_temperature, OPTION_INTEGER, "--gpu-max-temperature", "CELSIUS", "gpu_max_temperature", \
      0, 200, NULL, "0", "GPUs", \
      "A GPU of this temperature is too hot, until it is 5 degrees cooler. 0: the temperature at which the GPU " \
      "begins to slow down.") \
    X(int64_t, gpu_max_ecc, OPTION_INTEGER, "--gpu-max-ecc", "N", "gpu_max_ecc", 0, INT64_C(1000000000), NULL, "0", "GPUs", \
      "Uncorrected memory errors that a GPU may have had since its driver was loaded.") \
    X(const char *, gpu_xids, OPTION_TEXT, "--gpu-xids", "LIST", "gpu_xids", 0, 0, NULL, \
      "48,62,64,74,79,95,110,119,120,140,143", "GPUs", \
      "Numbers of the Xid messages that are faults of the GPU, not of a program. Messages of all numbers are " \
      "counted.") \
    X(const char *, kernel_log, OPTION_TEXT, "--kernel-log", "FILE", "kernel_log", 0, 0, NULL, "/dev/kmsg", "GPUs", \
      "File with the Xid messages, in records like those of /dev/kmsg.") \
    X(int64_t, request_timeout_ms, OPTION_SECONDS, "--request-timeout", "SECONDS", "request_timeout", \
      1, 3600, NULL, "5", "Connections", \
      "Close a connection that has not sent its request within this time.") \
    X(int64_t, max_connections, OPTION_INTEGER, "--max-connections", "N", "max_connections", \
      4, 65536, NULL, "256", "Connections", \
      "Largest number of connections that wait for an answer. One user may have a quarter of them.")
/* clang-format on */

struct daemon_config {
#define DAEMON_FIELD(ctype, field, ...) ctype field;
    DAEMON_OPTIONS(DAEMON_FIELD)
#undef DAEMON_FIELD
    struct settings settings; /* of the file; texts point into it */
    uid_t *allowed_users;
    size_t allowed_user_count;
    gid_t *allowed_groups;
    size_t allowed_group_count;
    unsigned gpu_check_set; /* of enum gpu_check */
};

extern const struct options_program daemon_program;

/* argv[0] is the word `daemon`. -1 with *e: nothing must be freed. */
int daemon_config_read(struct daemon_config *c, int argc, char *const argv[], struct err *e);
void daemon_config_free(struct daemon_config *c);
/* True when this user, a member of these groups, may run jobs. */
bool daemon_config_allows(const struct daemon_config *c, uid_t uid, const gid_t *groups, size_t count);
