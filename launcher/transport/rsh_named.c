/* What srun and kubectl must be told to carry a byte stream from our stdin to the command and back.
 *
 * srun: a step of one task on one node of the job that SLURM_JOB_ID names. --overlap lets it share the nodes
 * with other steps, and takes nothing from them. --unbuffered passes bytes on as they come (without it srun
 * waits for whole lines); the output then goes through a terminal of slurmstepd's that changes nothing.
 * --cpu-bind=none: the workers use all CPUs of the job there, not those of one task. Variables of sbatch that
 * srun reads as options are taken away, because they are about the user's tasks (SLURM_GPUS_PER_TASK would
 * leave the agent one GPU) or put labels before the bytes (SLURM_LABELIO); so is what holds on our own host
 * only.
 *
 * kubectl: `exec -i POD -- /bin/sh -c COMMAND`, whatever of it the user wrote. A terminal (-t) would change
 * bytes: it is refused. */
#include "launcher/transport/rsh_named.h"

#include <string.h>

static const char srun[] =
    "env -u SLURM_NTASKS -u SLURM_NPROCS -u SLURM_NTASKS_PER_NODE -u SLURM_NTASKS_PER_CORE "
    "-u SLURM_NTASKS_PER_SOCKET -u SLURM_NTASKS_PER_GPU -u SLURM_NTASKS_PER_TRES -u SLURM_TRES_PER_TASK "
    "-u SLURM_GPUS -u SLURM_GPUS_PER_TASK -u SLURM_GPUS_PER_SOCKET -u SLURM_GPU_BIND -u SLURM_TRES_BIND "
    "-u SLURM_CPUS_PER_TASK -u SLURM_CPUS_PER_GPU -u SLURM_THREADS_PER_CORE -u SLURM_DISTRIBUTION "
    "-u SLURM_HOSTFILE -u SLURM_LABELIO -u SLURM_STDINMODE -u SLURM_STDOUTMODE -u SLURM_STDERRMODE "
    "-u SLURM_EXACT -u SLURM_EXCLUSIVE -u SLURM_WHOLE -u SLURM_WAIT -u SLURM_TIMELIMIT "
    "-u CUDA_VISIBLE_DEVICES -u NVIDIA_VISIBLE_DEVICES -u ROCR_VISIBLE_DEVICES -u HIP_VISIBLE_DEVICES "
    "-u GPU_DEVICE_ORDINAL -u ZE_AFFINITY_MASK -u XDG_RUNTIME_DIR -u TMPDIR "
    "srun --quiet --nodes=1 --ntasks=1 --nodelist={host} --overlap --unbuffered --mpi=none --cpu-bind=none "
    "--export=ALL --job-name=hvdagent /bin/sh -c";

bool rsh_is_program(const char *word, const char *program)
{
    const char *slash = strrchr(word, '/');
    return strcmp(slash ? slash + 1 : word, program) == 0;
}

const char *rsh_named(const char *rsh)
{
    return strcmp(rsh, "srun") == 0 ? srun : rsh;
}

static bool is_kubectl(const struct rsh_argv *words)
{
    return words->count &&
           (rsh_is_program(words->word[0], "kubectl") || rsh_is_program(words->word[0], "oc"));
}

/* A letter among those of a word such as -it. */
static bool has_letter(const char *word, char letter)
{
    return word[0] == '-' && word[1] && word[1] != '-' && strspn(word + 1, "itq") == strlen(word + 1) &&
           strchr(word + 1, letter);
}

int rsh_named_complete(struct rsh_argv *words, struct err *e)
{
    bool exec = false, input = false, host = false, dashes = false;
    if (!is_kubectl(words))
        return 0;
    for (size_t i = 1; i < words->count && !dashes; i++) {
        const char *word = words->word[i];
        if (has_letter(word, 't') || strcmp(word, "--tty") == 0 || strcmp(word, "--tty=true") == 0) {
            err_set(e, ERR_USAGE, "--rsh: %.60s %.40s asks for a terminal, which changes bytes",
                    words->word[0], word);
            return err_hint(e, "give it -i alone");
        }
        exec = exec || strcmp(word, "exec") == 0;
        input = input || has_letter(word, 'i') || strcmp(word, "--stdin") == 0 ||
                strcmp(word, "--stdin=true") == 0;
        host = host || strstr(word, "{host}");
        dashes = strcmp(word, "--") == 0;
    }
    if (dashes && (!exec || !input || !host)) {
        err_set(e, ERR_USAGE, "--rsh: before -- %.60s needs exec, -i and {host}", words->word[0]);
        return err_hint(e, "or leave out -- and all behind it");
    }
    if (!exec && rsh_argv_push(words, "exec", e) < 0)
        return -1;
    if (!input && rsh_argv_push(words, "-i", e) < 0)
        return -1;
    if (!host && rsh_argv_push(words, "{host}", e) < 0)
        return -1;
    if (!dashes && rsh_argv_push(words, "--", e) < 0)
        return -1;
    if (strcmp(words->word[words->count - 1], "--") != 0)
        return 0;
    return rsh_argv_push(words, "/bin/sh", e) < 0 ? -1 : rsh_argv_push(words, "-c", e);
}

bool rsh_named_knows_no_user(const char *rsh, const struct rsh_argv *words)
{
    return rsh_named(rsh) == srun || is_kubectl(words);
}

bool rsh_tells_status(const char *line)
{
    return strncmp(line, "command terminated with exit code ", 34) == 0 ||
           (strncmp(line, "srun: error: ", 13) == 0 && strstr(line, ": task 0: Exited with exit code "));
}
