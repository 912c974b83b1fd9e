/* How a template becomes an argument vector.
 *
 *   1. Words are split at blanks; '...' keeps everything, "..." keeps everything but \" and \\, \ keeps the
 *      next character. No variable, no glob, no command substitution: what a user writes is what is executed.
 *   2. {host}, {user}, {port} are replaced inside a word, after splitting, so a value never makes a new word.
 *      A word with a placeholder that has no value (no user, no port) is left out, and so is an option
 *      directly before it: `-p {port}`. `{user}@{host}` without a user becomes the host alone.
 *   3. When no word had {host}, ssh's own options and then [user@]host are appended.
 *   4. A program called ssh also gets BatchMode (nobody answers a prompt here), the port and the identity
 *      that were asked for. A host or user that begins with '-' would be taken for an option by the program:
 *      it is refused.
 *   5. The word `srun` alone stands for a whole template, and a program called kubectl or oc gets the words
 *      that it lacks of `exec -i {host} -- /bin/sh -c`. */
#include "launcher/transport/rsh_template.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int push_word(struct rsh_argv *argv, const char *word, struct err *e)
{
    if (argv->count == RSH_WORDS_MAX)
        return err_set(e, ERR_USAGE, "--rsh has more than %d words", RSH_WORDS_MAX);
    char *copy = strdup(word);
    if (!copy)
        return err_set(e, ERR_MEMORY, "no memory for --rsh");
    argv->word[argv->count++] = copy;
    argv->word[argv->count] = NULL;
    return 0;
}

void rsh_argv_free(struct rsh_argv *argv)
{
    for (size_t i = 0; i < argv->count; i++)
        free(argv->word[i]);
    argv->count = 0;
    argv->word[0] = NULL;
}

/* Copies one word to `out`; returns where it ended, or NULL when a quote is open. */
static const char *next_word(const char *p, char *out)
{
    char quote = '\0';
    for (; *p && (quote || !strchr(" \t\n", *p)); p++) {
        if (quote ? *p == quote : (*p == '\'' || *p == '"')) {
            quote = quote ? '\0' : *p;
        } else if (*p == '\\' && quote != '\'' && p[1] && (!quote || p[1] == '"' || p[1] == '\\')) {
            *out++ = *++p;
        } else {
            *out++ = *p;
        }
    }
    *out = '\0';
    return quote ? NULL : p;
}

static int split_words(const char *rsh, struct rsh_argv *words, struct err *e)
{
    char *word = malloc(strlen(rsh) + 1);
    int rc = word ? 0 : err_set(e, ERR_MEMORY, "no memory for --rsh");
    while (rc == 0) {
        rsh += strspn(rsh, " \t\n");
        if (!*rsh)
            break;
        rsh = next_word(rsh, word);
        rc = rsh ? push_word(words, word, e) : err_set(e, ERR_USAGE, "--rsh: a quote is not closed");
    }
    free(word);
    if (rc == 0 && words->count == 0)
        return err_set(e, ERR_USAGE, "--rsh is empty");
    return rc;
}

enum placeholder { PLACE_HOST, PLACE_USER, PLACE_PORT, PLACE_COUNT };

struct values {
    const char *of[PLACE_COUNT]; /* NULL: none */
};

static const char *const place_names[PLACE_COUNT] = {"{host}", "{user}", "{port}"};

/* The placeholder that starts at p; -1 when none does. */
static int place_at(const char *p)
{
    for (int i = 0; i < PLACE_COUNT; i++)
        if (strncmp(p, place_names[i], strlen(place_names[i])) == 0)
            return i;
    return -1;
}

static bool names_host(const char *word)
{
    return strstr(word, place_names[PLACE_HOST]) != NULL;
}

/* Braces with a lower-case word in them are meant as a placeholder: an unknown one is a typing error. */
static int check_word(const char *word, struct err *e)
{
    for (const char *p = word; (p = strchr(p, '{')); p++) {
        size_t len = strspn(p + 1, "abcdefghijklmnopqrstuvwxyz_");
        if (len && p[len + 1] == '}' && place_at(p) < 0) {
            err_set(e, ERR_USAGE, "--rsh has an unknown placeholder %.*s", (int)len + 2, p);
            return err_hint(e, "the placeholders are {host}, {user} and {port}");
        }
    }
    return 0;
}

/* ---- programs that --rsh knows by name ----------------------------------------------------------------- */

/* srun and kubectl carry a byte stream from our stdin to the command and back with these words.
 *
 * srun: a step of one task on one node of the job that SLURM_JOB_ID names. --overlap lets it share the
 * nodes with other steps, and takes nothing from them. --unbuffered passes bytes on as they come (without
 * it srun waits for whole lines); the output then goes through a terminal of slurmstepd's that changes
 * nothing. --cpu-bind=none: the workers use all CPUs of the job there, not those of one task. Variables of
 * sbatch that srun reads as options are taken away, because they are about the user's tasks
 * (SLURM_GPUS_PER_TASK would leave the agent one GPU) or put labels before the bytes (SLURM_LABELIO); so
 * are variables that mean something only on this host.
 *
 * kubectl: `exec -i POD -- /bin/sh -c COMMAND`; the user may have written a part of these words. A
 * terminal (-t) would change bytes: it is refused. */
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

static bool is_program(const char *word, const char *program)
{
    const char *slash = strrchr(word, '/');
    return strcmp(slash ? slash + 1 : word, program) == 0;
}

static const char *expand_name(const char *rsh)
{
    return strcmp(rsh, "srun") == 0 ? srun : rsh;
}

static bool is_kubectl(const struct rsh_argv *words)
{
    return words->count && (is_program(words->word[0], "kubectl") || is_program(words->word[0], "oc"));
}

/* A letter among those of a word such as -it. */
static bool has_letter(const char *word, char letter)
{
    return word[0] == '-' && word[1] && word[1] != '-' && strspn(word + 1, "itq") == strlen(word + 1) &&
           strchr(word + 1, letter);
}

static int complete_kubectl(struct rsh_argv *words, struct err *e)
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
        return err_hint(e, "add them, or remove -- and everything after it");
    }
    if (!exec && push_word(words, "exec", e) < 0)
        return -1;
    if (!input && push_word(words, "-i", e) < 0)
        return -1;
    if (!host && push_word(words, "{host}", e) < 0)
        return -1;
    if (!dashes && push_word(words, "--", e) < 0)
        return -1;
    if (strcmp(words->word[words->count - 1], "--") != 0)
        return 0;
    return push_word(words, "/bin/sh", e) < 0 ? -1 : push_word(words, "-c", e);
}

static bool knows_no_user(const char *rsh, const struct rsh_argv *words)
{
    return expand_name(rsh) == srun || is_kubectl(words);
}

/* ---- expansion ----------------------------------------------------------------------------------------- */

/* The words of a template, with those that a known program adds. */
static int read_words(const char *rsh, struct rsh_argv *words, struct err *e)
{
    if (split_words(expand_name(rsh), words, e) < 0)
        return -1;
    return complete_kubectl(words, e);
}

static int check_user(const char *rsh, const struct rsh_argv *words, const char *user, const char *host,
                      struct err *e)
{
    if (!knows_no_user(rsh, words))
        return 0;
    return err_set(e, ERR_USAGE, "%s@%s: --rsh %.40s takes no user for a host", user, host, rsh);
}

int rsh_template_check_hosts(const char *rsh, const struct host_list *hosts, struct err *e)
{
    struct rsh_argv words = {.count = 0};
    int rc = read_words(rsh, &words, e);
    for (size_t i = 0; rc == 0 && i < hosts->count; i++)
        if (hosts->host[i].user)
            rc = check_user(rsh, &words, hosts->host[i].user, hosts->host[i].name, e);
    rsh_argv_free(&words);
    return rc;
}

int rsh_template_check(const char *rsh, struct err *e)
{
    struct rsh_argv words = {.count = 0};
    int rc = read_words(rsh, &words, e);
    for (size_t i = 0; rc == 0 && i < words.count; i++)
        rc = check_word(words.word[i], e);
    rsh_argv_free(&words);
    return rc;
}

/* 1: filled, 0: a placeholder has no value and the word falls away, -1: too long. */
static int fill_word(const char *word, const struct values *values, char *out, size_t size)
{
    size_t len = 0;
    while (*word) {
        int place = place_at(word);
        const char *text = place >= 0 ? values->of[place] : NULL;
        if (place == PLACE_USER && !text && word[strlen("{user}")] == '@') {
            word += strlen("{user}@");
            continue;
        }
        if (place >= 0 && !text)
            return 0;
        size_t add = text ? strlen(text) : 1;
        if (len + add >= size)
            return -1;
        memcpy(out + len, text ? text : word, add);
        len += add;
        word += place >= 0 ? strlen(place_names[place]) : 1;
    }
    out[len] = '\0';
    return 1;
}

static int push_ssh_options(struct rsh_argv *argv, const struct transport_target *target, bool port_placed,
                            struct err *e)
{
    char port[8];
    snprintf(port, sizeof port, "%u", (unsigned)target->port);
    if (push_word(argv, "-o", e) < 0 || push_word(argv, "BatchMode=yes", e) < 0)
        return -1;
    /* No pseudo terminal, whatever the configuration says: it would change bytes. */
    if (push_word(argv, "-T", e) < 0)
        return -1;
    if (target->port && !port_placed && (push_word(argv, "-p", e) < 0 || push_word(argv, port, e) < 0))
        return -1;
    if (target->identity_file &&
        (push_word(argv, "-i", e) < 0 || push_word(argv, target->identity_file, e) < 0))
        return -1;
    return 0;
}

static int check_names(const struct transport_target *target, struct err *e)
{
    if (!target->host || !*target->host || target->host[0] == '-')
        return err_set(e, ERR_USAGE, "bad host name \"%s\"", target->host ? target->host : "");
    if (target->user && (!*target->user || target->user[0] == '-'))
        return err_set(e, ERR_USAGE, "bad user name \"%s\" for host %s", target->user, target->host);
    return 0;
}

static int push_host(struct rsh_argv *argv, const struct transport_target *target, struct err *e)
{
    char destination[1024];
    int n = snprintf(destination, sizeof destination, "%s%s%s", target->user ? target->user : "",
                     target->user ? "@" : "", target->host);
    if (n < 0 || (size_t)n >= sizeof destination)
        return err_set(e, ERR_USAGE, "the name of host %.60s... is too long", target->host);
    return push_word(argv, destination, e);
}

/* The template's words, filled. ssh's own options go directly behind the program's name: behind the
 * destination they would be part of the remote command. */
static int expand_words(const struct rsh_argv *words, const struct values *values,
                        const struct transport_target *target, struct rsh_argv *argv, struct err *e)
{
    char filled[4096];
    bool port_placed = false, kept = false; /* the word before this one */
    for (size_t i = 0; i < words->count; i++)
        port_placed = port_placed || strstr(words->word[i], place_names[PLACE_PORT]) != NULL;
    for (size_t i = 0; i < words->count; i++) {
        int rc = fill_word(words->word[i], values, filled, sizeof filled);
        if (rc < 0)
            return err_set(e, ERR_USAGE, "--rsh: a word is longer than %zu bytes", sizeof filled);
        if (rc == 0) {
            /* The option before it goes too: "-p {port}", but not "-v -p{port}". */
            if (i > 1 && kept && words->word[i][0] != '-' && words->word[i - 1][0] == '-') {
                free(argv->word[--argv->count]);
                argv->word[argv->count] = NULL;
            }
            kept = false;
            continue;
        }
        kept = true;
        if (push_word(argv, filled, e) < 0)
            return -1;
        if (i == 0 && is_program(filled, "ssh") && push_ssh_options(argv, target, port_placed, e) < 0)
            return -1;
    }
    return 0;
}

int rsh_template_expand(const struct transport_target *target, struct rsh_argv *argv, struct err *e)
{
    const char *rsh = target->rsh ? target->rsh : "ssh";
    struct rsh_argv words = {.count = 0};
    char port[8];
    argv->count = 0;
    argv->word[0] = NULL;
    snprintf(port, sizeof port, "%u", (unsigned)target->port);
    struct values values = {{target->host, target->user, target->port ? port : NULL}};
    bool host_placed = false;
    if (check_names(target, e) < 0 || rsh_template_check(rsh, e) < 0)
        return -1;
    int rc = read_words(rsh, &words, e);
    if (rc == 0 && target->user)
        rc = check_user(rsh, &words, target->user, target->host, e);
    for (size_t i = 0; rc == 0 && i < words.count; i++)
        host_placed = host_placed || names_host(words.word[i]);
    if (rc == 0)
        rc = expand_words(&words, &values, target, argv, e);
    if (rc == 0 && argv->count == 0)
        rc = err_set(e, ERR_USAGE, "--rsh names no program");
    if (rc == 0 && !host_placed)
        rc = push_host(argv, target, e);
    if (rc == 0)
        rc = push_word(argv, target->command, e);
    rsh_argv_free(&words);
    return rc;
}

bool rsh_tells_status(const char *line)
{
    return strncmp(line, "command terminated with exit code ", 34) == 0 ||
           (strncmp(line, "srun: error: ", 13) == 0 && strstr(line, ": task 0: Exited with exit code "));
}
