/* The two reports of dry_run.h.
 *
 * --dry-run shows the plan as far as it can be known before a host was asked: ranks are certain up to the
 * first host whose slots are auto; behind it only the order is. Nothing is resolved or connected; this host
 * is asked for its GPUs when it is one of the job's.
 * --check-build opens each module, because a module that is there but cannot be opened (a library is missing)
 * is what people call it for. */
#include "launcher/job/dry_run.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/ranks.h"
#include "common/modules/yaml.h"
#include "common/process/gpu_probe.h"
#include "common/process/module.h"
#include "common/protocol/control.pb-c.h"
#include "common/protocol/message.h"
#include "launcher/plan/plan.h"
#include "launcher/transport/transport.h"

/* ---- the GPUs of this host ----------------------------------------------------------------------------- */

/* The answer of this host's hvdagent. Freed with message_free; NULL with *e. */
static Hvd__Gpus *local_gpus(bool libraries, struct err *e)
{
    char agent[PATH_MAX] = "";
    struct err none = ERR_INIT;
    if (module_program_dir(agent, sizeof agent - sizeof "/hvdagent", &none) == 0)
        strncat(agent, "/hvdagent", sizeof agent - strlen(agent) - 1);
    if (access(agent, X_OK) < 0 && spawn_find("hvdagent", getenv("PATH"), NULL, agent, sizeof agent, e) < 0)
        return NULL;
    return gpu_probe(agent, libraries, GPU_PROBE_MS, e);
}

static const char *or_unknown(const char *text)
{
    return text[0] ? text : "?";
}

static void print_gpu(FILE *out, size_t index, const Hvd__Gpu *gpu)
{
    char memory[24] = "?", numa[16] = "?";
    if (gpu->memory)
        snprintf(memory, sizeof memory, "%.0f GiB", (double)gpu->memory / (1u << 30));
    if (gpu->numa >= 0)
        snprintf(numa, sizeof numa, "%d", gpu->numa);
    fprintf(out, "%5zu  %-30s %8s  %-12s %5s  %s\n", index, or_unknown(gpu->name), memory,
            or_unknown(gpu->bus), numa, or_unknown(gpu->uuid));
}

/* A table, and what is wrong with them; nothing when there is neither. */
static void local_gpus_print(const char *hostname, FILE *out)
{
    struct err e = ERR_INIT;
    Hvd__Gpus *g = local_gpus(false, &e);
    if (g && g->n_gpu) {
        fprintf(out, "\nGPUs of this host, %s (others are not asked):\n%5s  %-30s %8s  %-12s %5s  %s\n",
                hostname, "index", "name", "memory", "bus id", "NUMA", "UUID");
        for (size_t i = 0; i < g->n_gpu; i++)
            print_gpu(out, i, g->gpu[i]);
        fprintf(out, "multi-process service (--mps): %s\n",
                g->mps[0] ? g->mps : "no nvidia-cuda-mps-control in PATH");
    }
    if (!g || g->problem[0])
        fprintf(out, "\n%s: %s\n", hostname, g ? g->problem : e.text);
    message_free(g);
}

static void put_gpu(struct json *j, size_t index, const Hvd__Gpu *gpu)
{
    json_object(j, NULL);
    json_unsigned(j, "index", index);
    json_filled_text(j, "name", gpu->name);
    json_filled_text(j, "uuid", gpu->uuid);
    json_filled_text(j, "bus_id", gpu->bus);
    json_known_integer(j, "numa", gpu->numa >= 0, gpu->numa);
    json_unsigned(j, "memory_bytes", gpu->memory);
    json_bool(j, "mig_instance", gpu->instance);
    json_end(j);
}

/* An array "gpus", and "mps_control" and "gpu_problem", each a text or null. */
static void local_gpus_put(struct json *j)
{
    struct err e = ERR_INIT;
    Hvd__Gpus *g = local_gpus(false, &e);
    json_array(j, "gpus");
    for (size_t i = 0; g && i < g->n_gpu; i++)
        put_gpu(j, i, g->gpu[i]);
    json_end(j);
    json_filled_text(j, "mps_control", g ? g->mps : "");
    json_filled_text(j, "gpu_problem", g ? g->problem : e.text);
    message_free(g);
}

static void print_version(FILE *out, const char *name, const char *before, const char *version,
                          const char *missing)
{
    fprintf(out, "    [%c] %-13s %s%s\n", version[0] ? 'X' : ' ', name, version[0] ? before : "",
            version[0] ? version : missing);
}

/* The libraries that GPUs need, with their versions. */
static void local_gpus_check(FILE *out)
{
    struct err e = ERR_INIT;
    Hvd__Gpus *g = local_gpus(true, &e);
    if (!g) {
        fprintf(out, "    %s\n", e.text);
        return;
    }
    print_version(out, "NVIDIA driver", "", g->driver, "not here, or it does not answer");
    print_version(out, "CUDA driver", "for CUDA up to ", g->cuda, "no libcuda.so.1");
    print_version(out, "NVML", "", g->nvml, "no libnvidia-ml.so.1, or no driver");
    print_version(out, "NCCL", "", g->nccl, "no libnccl.so.2");
    print_version(out, "MPS", "", g->mps, "no nvidia-cuda-mps-control in PATH");
    fprintf(out, "        %-13s %zu\n", "GPUs", g->n_gpu);
    if (g->problem[0])
        fprintf(out, "    %s\n", g->problem);
    message_free(g);
}

/* ---- transports ---------------------------------------------------------------------------------------- */

/* The transport that reaches a host: "local", "exec" (--rsh) or "ssh". */
static const char *dry_run_transport(const struct config *config, const struct host_spec *host,
                                     const char *hostname)
{
    if (hosts_is_local(host, hostname))
        return "local";
    return config->rsh ? "exec" : "ssh";
}

/* ---- --dry-run ----------------------------------------------------------------------------------------- */

struct columns {
    int host, slots, ranks; /* widths */
};

/* user@name as the user wrote it. */
static void host_label(const struct host_spec *host, char *text, size_t size)
{
    bool ipv6 = strchr(host->name, ':') != NULL;
    snprintf(text, size, "%s%s%s%s%s", host->user ? host->user : "", host->user ? "@" : "", ipv6 ? "[" : "",
             host->name, ipv6 ? "]" : "");
}

#define LABEL_MAX (HOSTS_USER_MAX + HOSTS_NAME_MAX + 4)

/* Ranks that are known before a host was asked. */
struct known {
    struct plan_want want;
    size_t count; /* hosts that can get ranks */
    bool planned; /* all is known */
    struct plan plan;
    /* of the hosts that were shown: */
    uint32_t next; /* the rank at which the plan goes on */
    uint32_t from; /* ranks; UINT32_MAX: not known how many */
};

/* The ranks of a host as far as they are known: 0 of them, or first UINT32_MAX, when they are not. */
struct span {
    uint32_t first, ranks;
    const uint32_t *rank; /* NULL: not planned */
};

/* The ranks of a host depend on hosts after it, or on counts that the hosts give later. */
static bool is_spread(const struct plan_want *want)
{
    return want->by_node || want->oversubscribe || want->per_part || want->parts;
}

/* One host's ranks, given those before it. */
static struct span next_span(struct known *k, const struct host_list *hosts, size_t index)
{
    struct span span = {.first = k->from};
    uint32_t np = k->want.np, slots = hosts->host[index].slots;
    uint32_t left = np && k->from != UINT32_MAX ? np - k->from : UINT32_MAX;
    if (k->planned) {
        const struct plan_host *h = &k->plan.host[k->next];
        if (k->next >= k->plan.host_count || h->index != index)
            return (struct span){.first = UINT32_MAX};
        k->next++;
        return (struct span){h->rank[0], h->ranks, h->rank};
    }
    if (is_spread(&k->want))
        k->from = span.first = UINT32_MAX;
    if (k->from == UINT32_MAX)
        return span;
    if (!slots && left > 1) {
        k->from = UINT32_MAX;
        return span;
    }
    span.ranks = slots < left ? slots : left;
    span.ranks = span.ranks ? span.ranks : 1;
    k->from += span.ranks;
    return span;
}

static void span_text(const struct known *k, struct span span, char *text, size_t size)
{
    if (span.rank)
        ranks_text_short(span.rank, span.ranks, text, size);
    else if (span.first == UINT32_MAX)
        snprintf(text, size, k->planned ? "none" : is_spread(&k->want) ? "?" : "after those");
    else if (!span.ranks)
        snprintf(text, size, "from %u", span.first);
    else
        snprintf(text, size, span.ranks > 1 ? "%u-%u" : "%u", span.first, span.first + span.ranks - 1);
}

static void slots_text(const struct host_spec *host, char *text, size_t size)
{
    if (host->slots)
        snprintf(text, size, "%u", host->slots);
    else
        snprintf(text, size, "auto");
}

static void print_row(FILE *out, struct columns width, const char *host, const char *transport,
                      const char *slots, const char *ranks)
{
    fprintf(out, "%-*s  %-9s  %*s  %s\n", width.host, host, transport, width.slots, slots, ranks);
}

static void print_hosts(const struct config *config, const struct host_list *hosts, struct known *k,
                        const char *hostname, FILE *out)
{
    char label[LABEL_MAX], slots[16], ranks[120];
    struct columns width = {.host = 4, .slots = 5};
    for (size_t i = 0; i < k->count; i++) {
        host_label(&hosts->host[i], label, sizeof label);
        if ((int)strlen(label) > width.host)
            width.host = (int)strlen(label);
    }
    print_row(out, width, "host", "transport", "slots", "ranks");
    for (size_t i = 0; i < k->count; i++) {
        host_label(&hosts->host[i], label, sizeof label);
        slots_text(&hosts->host[i], slots, sizeof slots);
        span_text(k, next_span(k, hosts, i), ranks, sizeof ranks);
        print_row(out, width, label, dry_run_transport(config, &hosts->host[i], hostname), slots, ranks);
    }
}

/* A word as a shell would have to be given it. */
static void print_word(const char *word, FILE *out)
{
    bool plain = *word && word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                            "_./:=,+@%^-")] == '\0';
    if (plain) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc((unsigned char)*word < 0x20 || *word == 0x7f ? '?' : *word, out);
    }
    fputc('\'', out);
}

static void print_command(const struct program *p, bool only, FILE *out)
{
    if (only)
        fputs("command:", out);
    else if (p->ranks == 1)
        fprintf(out, "command of rank %u:", p->first);
    else
        fprintf(out, "command of ranks %u-%u:", p->first, p->first + p->ranks - 1);
    for (char *const *word = p->command; *word; word++) {
        fputc(' ', out);
        print_word(*word, out);
    }
    fputc('\n', out);
}

static bool has_local(const struct host_list *hosts, const struct known *k, const char *hostname)
{
    for (size_t i = 0; i < k->count; i++)
        if (hosts_is_local(&hosts->host[i], hostname))
            return true;
    return false;
}

static void print_text(const struct config *config, const struct host_list *hosts, struct known *k,
                       const char *hostname, FILE *out)
{
    if (k->planned || k->want.np)
        fprintf(out, "ranks: %u\n", k->planned ? k->plan.size : k->want.np);
    else if (k->want.per_part)
        fprintf(out, "ranks: %u for every %s\n", k->want.ppr, k->want.per_part);
    else
        fprintf(out, "ranks: one for every slot\n");
    for (size_t i = 0; i < config->programs.count; i++)
        print_command(&config->programs.item[i], config->programs.count == 1, out);
    fputc('\n', out);
    print_hosts(config, hosts, k, hostname, out);
    if (hosts->count > k->count)
        fprintf(out, "\nhosts not needed: %zu\n", hosts->count - k->count);
    if (!k->planned && k->want.per_part)
        fprintf(out, "\n?: the number of units (%s) is known when the host's agent has answered\n",
                k->want.per_part);
    else if (!k->planned)
        fprintf(out,
                "\nauto: as many slots as the host has GPUs, or one; known when its agent has answered\n");
    if (has_local(hosts, k, hostname))
        local_gpus_print(hostname, out);
}

static void put_host(struct json *j, const struct config *config, const struct host_spec *host,
                     const char *hostname, struct span span)
{
    json_object(j, NULL);
    json_text(j, "name", host->name);
    json_text(j, "user", host->user);
    json_text(j, "transport", dry_run_transport(config, host, hostname));
    json_known_unsigned(j, "slots", host->slots, host->slots);
    json_known_unsigned(j, "first_rank", span.first != UINT32_MAX, span.first);
    json_known_unsigned(j, "ranks", span.ranks, span.ranks);
    json_array(j, "rank_list");
    for (uint32_t i = 0; i < span.ranks; i++)
        json_unsigned(j, NULL, span.rank ? span.rank[i] : span.first + i);
    json_end(j);
    json_end(j);
}

/* The same for programs; what is not known before the hosts were asked is null. */
static void print_json(const struct config *config, const struct host_list *hosts, struct known *k,
                       const char *hostname, FILE *out)
{
    struct json j;
    json_begin(&j, out);
    json_object(&j, NULL);
    json_text(&j, "hvdrun", HVD_VERSION);
    json_known_unsigned(&j, "ranks", k->planned || k->want.np, k->planned ? k->plan.size : k->want.np);
    programs_put(&config->programs, &j);
    json_array(&j, "hosts");
    for (size_t i = 0; i < k->count; i++)
        put_host(&j, config, &hosts->host[i], hostname, next_span(k, hosts, i));
    json_end(&j);
    json_unsigned(&j, "hosts_not_needed", hosts->count - k->count);
    if (has_local(hosts, k, hostname))
        local_gpus_put(&j);
    json_end(&j);
    fputc('\n', out);
}

int dry_run_print(const struct config *config, const struct host_list *hosts, const char *hostname, FILE *out,
                  struct err *e)
{
    struct known k = {.want = placement_want(config)};
    if (plan_check(hosts, &k.want, e))
        return -1;
    k.count = plan_hosts(hosts, &k.want);
    k.planned = plan_make(&k.plan, hosts, k.count, &k.want, NULL) == 0;
    if (config->dry_run == CONFIG_DRY_RUN_JSON)
        print_json(config, hosts, &k, hostname, out);
    else
        print_text(config, hosts, &k, hostname, out);
    plan_free(&k.plan);
    return 0;
}

/* ---- --check-build ------------------------------------------------------------------------------------- */

static void print_part(FILE *out, const char *name, bool present, const char *where)
{
    fprintf(out, "    [%c] %-13s %s\n", present ? 'X' : ' ', name, where);
}

/* A part that is missing says why, and how to get the part. */
static void print_path(FILE *out, const char *name, const char *path, const struct err *e)
{
    print_part(out, name, path != NULL, path ? path : e->text);
    if (!path && e->hint[0])
        fprintf(out, "        %-13s %s\n", "", e->hint);
}

static void print_module(FILE *out, const char *name, const char *file, const char *symbol)
{
    struct err e = ERR_INIT;
    char path[PATH_MAX];
    bool present = module_symbol(name, symbol, &e) && module_path(file, path, sizeof path, &e) == 0;
    print_path(out, name, present ? path : NULL, &e);
}

static void print_agent(FILE *out)
{
    struct err e = ERR_INIT;
    char path[PATH_MAX];
    bool present = module_program_dir(path, sizeof path - sizeof "/hvdagent", &e) == 0;
    if (present) {
        size_t used = strlen(path);
        snprintf(path + used, sizeof path - used, "/hvdagent");
        present = access(path, X_OK) == 0;
    }
    print_part(out, "hvdagent", present, present ? path : "not beside hvdrun; PATH is searched");
}

/* A wheel for pip has hvd-pmix, but not its library. */
static void print_program(FILE *out, const char *name, const char *library)
{
    struct err e = ERR_INIT;
    char path[PATH_MAX];
    bool runs = module_path(name, path, sizeof path, &e) == 0;
    if (runs && library && !dlopen(library, RTLD_LAZY)) {
        runs = false;
        err_set(&e, ERR_SYSTEM, "%s", dlerror());
        err_hint(&e, "install libpmix2 (Debian's name) for MPI programs that need PMIx");
    }
    print_path(out, name, runs ? path : NULL, &e);
}

void check_build_print(FILE *out)
{
    fprintf(out, "hvdrun %s\n\nTransports:\n", HVD_VERSION);
    print_part(out, "local", true, "built in");
    print_part(out, "exec", true, "built in (--rsh)");
    print_module(out, TRANSPORT_SSH_MODULE, TRANSPORT_SSH_MODULE ".so", TRANSPORT_SSH_SYMBOL);
    fprintf(out, "\nPrograms and modules:\n");
    print_agent(out);
    print_program(out, "hvd-engine", NULL);
    print_program(out, "hvd-pmix", "libpmix.so.2");
    print_module(out, "auth", "auth.so", "hvd_module_version");
    print_module(out, "tls", "tls.so", "hvd_module_version");
    print_module(out, "gloo", "gloo.so", "hvd_module_version");
    print_module(out, "topology", "topology.so", "hvd_module_version");
    print_module(out, "systemd", "systemd.so", "hvd_module_version");
    print_module(out, "metrics", "metrics.so", "hvd_module_version");
    print_module(out, YAML_MODULE, YAML_MODULE ".so", YAML_SYMBOL);
    fprintf(out, "\nGPUs of this host:\n");
    local_gpus_check(out);
    fprintf(out, "\nCollectives (libhvd):\n");
    print_part(out, "allreduce", true, "sum, average, min, max, product, bits, truth, Adasum");
    print_part(out, "reducescatter", true, "the same but Adasum");
    print_part(out, "groups", true, "of either, as one operation");
    print_part(out, "allgather", true, "of rows, as many as each rank has");
    print_part(out, "alltoall", true, "of rows, with splits");
    print_part(out, "broadcast", true, "from any rank");
    print_part(out, "send", true, "from one rank to another, and receive");
    print_part(out, "barrier", true, "of all ranks, or of a process set");
    print_part(out, "join", true, "of ranks that have no more work");
    fprintf(
        out,
        "\nElement types:\n    int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64, bool;\n"
        "    float8 (E4M3, E5M2), reduced on GPUs only\n");
}
