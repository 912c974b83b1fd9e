#include "launcher/plan/local_gpus.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/process/gpu_probe.h"
#include "common/base/log.h"
#include "common/protocol/message.h"
#include "common/process/module.h"

Hvd__Gpus *local_gpus(bool libraries, struct err *e)
{
    char agent[PATH_MAX] = "";
    struct err none = ERR_INIT;
    if (module_program_dir(agent, sizeof agent - sizeof "/hvdagent", &none) == 0)
        strncat(agent, "/hvdagent", sizeof agent - strlen(agent) - 1);
    if (access(agent, X_OK) < 0 && spawn_find("hvdagent", getenv("PATH"), NULL, agent, sizeof agent, e) < 0)
        return NULL;
    return gpu_probe(agent, libraries, GPU_PROBE_MS, e);
}

/* ---- --dry-run ----------------------------------------------------------------------------------------- */

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

void local_gpus_print(const char *hostname, FILE *out)
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

void local_gpus_put(struct json *j)
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

/* ---- --check-build ------------------------------------------------------------------------------------- */

static void print_version(FILE *out, const char *name, const char *before, const char *version,
                          const char *missing)
{
    fprintf(out, "    [%c] %-13s %s%s\n", version[0] ? 'X' : ' ', name, version[0] ? before : "",
            version[0] ? version : missing);
}

void local_gpus_check(FILE *out)
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
