/* Slurm's lists from anywhere: first the nodes, and behind a line break the counts. Either is written out
 * within its limits or refused with one line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/allocation/nodelist.h"
#include "launcher/plan/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(const struct err *e)
{
    if (e->code != ERR_USAGE || !e->text[0] || strchr(e->text, '\n'))
        abort();
}

static void check_counts(const char *text, size_t count)
{
    uint32_t *counts = calloc(count, sizeof *counts);
    struct err e = ERR_INIT;
    if (!counts)
        return;
    if (nodelist_counts(text, "SLURM_TASKS_PER_NODE", counts, count, &e)) {
        check_refusal(&e);
    } else {
        for (size_t i = 0; i < count; i++)
            if (!counts[i] || counts[i] > HOSTS_SLOTS_MAX)
                abort();
    }
    free(counts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf names;
    struct err e = ERR_INIT;
    size_t count = 0;
    char *text = strndup((const char *)data, size);
    char *nodes = text ? strdup(text) : NULL;
    if (!nodes) {
        free(text);
        return 0;
    }
    nodes[strcspn(nodes, "\n")] = '\0';
    const char *counts = text + strlen(nodes);
    buf_init(&names, NODELIST_BYTES_MAX);
    if (nodelist_expand(nodes, "SLURM_JOB_NODELIST", &names, &count, &e)) {
        if (e.code != ERR_MEMORY)
            check_refusal(&e);
    } else {
        const char *name = (const char *)buf_data(&names), *end = name + names.len;
        size_t found = 0;
        for (; name < end; name += strlen(name) + 1, found++)
            if (!*name || strlen(name) > HOSTS_NAME_MAX || strpbrk(name, "[],"))
                abort();
        if (!count || count > HOSTS_MAX || found != count)
            abort();
        check_counts(*counts ? counts + 1 : counts, count);
    }
    buf_free(&names);
    free(nodes);
    free(text);
    return 0;
}
