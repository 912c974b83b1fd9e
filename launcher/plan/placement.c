#include "launcher/plan/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "launcher/cli/config.h"
#include "launcher/plan/rankfile.h"

#define PE_MAX 65536

static const struct map {
    const char *word;
    Hvd__Binding__Map map_by;
    Hvd__Binding__Bind bind_to; /* unless --bind-to says something else */
} maps[] = {{"slot", HVD__BINDING__MAP__BY_SLOT, HVD__BINDING__BIND__TO_NONE},
            {"node", HVD__BINDING__MAP__BY_NODE, HVD__BINDING__BIND__TO_NONE},
            {"numa", HVD__BINDING__MAP__BY_NUMA, HVD__BINDING__BIND__TO_NUMA},
            {"socket", HVD__BINDING__MAP__BY_SOCKET, HVD__BINDING__BIND__TO_SOCKET},
            {"core", HVD__BINDING__MAP__BY_CORE, HVD__BINDING__BIND__TO_CORE}};

static bool is_word(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && strncasecmp(text, word, len) == 0;
}

static int bad_map_by(const char *text, struct err *e)
{
    return err_set(
        e, ERR_USAGE,
        "--map-by must be slot, node, numa, socket, core or ppr:N:WHAT, with :PE=N or :OVERSUBSCRIBE behind "
        "it or nothing, not '%s'",
        text);
}

/* The row of that word; NULL: there is none. */
static const struct map *find_map(const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (is_word(text, len, maps[i].word))
            return &maps[i];
    return NULL;
}

/* Reads N[:WHAT] and returns the end of it: the end of the text, or the ':' after WHAT. NULL: the text is
 * something else. */
static const char *take_ppr(struct placement *p, const char *text)
{
    char *end;
    unsigned long value = *text >= '1' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (!value || value > CONFIG_RANKS_MAX || (*end && *end != ':'))
        return NULL;
    p->ppr = (uint32_t)value;
    if (!*end)
        return end;
    size_t len = strcspn(++end, ":");
    const struct map *map = find_map(end, len);
    if (!map || map->map_by == HVD__BINDING__MAP__BY_SLOT)
        return NULL;
    if (map->map_by == HVD__BINDING__MAP__BY_NODE)
        return end + len; /* host by host, as without it */
    p->map_by = map->map_by;
    p->bind_to = map->bind_to;
    p->per_part = map->word;
    return end + len;
}

/* PE=N */
static bool take_pe(const char *at, size_t len, uint32_t *pe)
{
    char *end;
    if (len < 4 || strncasecmp(at, "pe=", 3) != 0 || at[3] < '1' || at[3] > '9')
        return false;
    unsigned long value = strtoul(at + 3, &end, 10);
    *pe = (uint32_t)value;
    return end == at + len && value <= PE_MAX;
}

/* WORD[:MODIFIER]... */
static int parse_map_by(struct placement *p, const char *text, struct err *e)
{
    size_t len = strcspn(text, ":");
    const struct map *map = find_map(text, len);
    const char *at = text + len;
    if (map) {
        p->map_by = map->map_by;
        p->bind_to = map->bind_to;
    } else if (!is_word(text, len, "ppr") || *at != ':' || !strchr(at + 1, ':') ||
               !(at = take_ppr(p, at + 1))) {
        return bad_map_by(text, e);
    }
    for (; *at == ':'; at += len) {
        len = strcspn(++at, ":");
        if (is_word(at, len, "oversubscribe"))
            p->oversubscribe = true;
        else if (!take_pe(at, len, &p->pe))
            return bad_map_by(text, e);
    }
    return 0;
}

static int parse_bind_to(struct placement *p, const struct config *config, struct err *e)
{
    static const Hvd__Binding__Bind words[] = {HVD__BINDING__BIND__TO_NONE, HVD__BINDING__BIND__TO_NONE,
                                               HVD__BINDING__BIND__TO_CORE, HVD__BINDING__BIND__TO_NUMA,
                                               HVD__BINDING__BIND__TO_SOCKET};
    if (config->bind_to != CONFIG_BIND_AUTO)
        p->bind_to = words[config->bind_to];
    if (!p->pe)
        return 0;
    if (config->bind_to != CONFIG_BIND_AUTO && p->bind_to != HVD__BINDING__BIND__TO_CORE)
        return err_set(e, ERR_USAGE,
                       "--map-by %s gives each rank cores, and so goes with --bind-to core only",
                       config->map_by);
    p->bind_to = HVD__BINDING__BIND__TO_CORE;
    return 0;
}

/* --ppr beside --map-by, which may say the same, or nothing about it. */
static int parse_ppr(struct placement *p, const struct config *config, struct err *e)
{
    struct placement own = {0};
    const char *end = config->ppr ? take_ppr(&own, config->ppr) : "";
    if (!end || *end) {
        err_set(e, ERR_USAGE, "--ppr must be N, or N:WHAT with socket, numa, core or node, not '%s'",
                config->ppr);
        return err_hint(e, "N is from 1 to %d", CONFIG_RANKS_MAX);
    }
    if (!config->ppr)
        return 0;
    if (p->ppr || (own.per_part && p->map_by != HVD__BINDING__MAP__BY_SLOT && p->map_by != own.map_by))
        return err_set(e, ERR_USAGE, "--ppr %s and --map-by %s exclude each other", config->ppr,
                       config->map_by);
    p->ppr = own.ppr;
    if (!own.per_part)
        return 0;
    p->per_part = own.per_part;
    p->map_by = own.map_by;
    p->bind_to = own.bind_to;
    return 0;
}

int placement_parse(struct placement *p, const struct config *config, struct err *e)
{
    *p = (struct placement){0};
    if (parse_map_by(p, config->map_by, e) < 0 || parse_ppr(p, config, e) < 0 ||
        parse_bind_to(p, config, e) < 0)
        return -1;
    if (p->oversubscribe && config->no_oversubscribe)
        return err_set(e, ERR_USAGE, "--map-by %s and --no-oversubscribe exclude each other", config->map_by);
    p->oversubscribe |= config->oversubscribe;
    if (config->rankfile && (p->map_by != HVD__BINDING__MAP__BY_SLOT || p->pe || p->ppr))
        return err_set(e, ERR_USAGE, "--rankfile says where each rank goes: --map-by and --ppr exclude it");
    return 0;
}

int placement_read(struct placement *p, const struct config *config, struct err *e)
{
    if (config->rankfile)
        p->rankfile = rankfile_read(config->rankfile, e);
    return config->rankfile && !p->rankfile ? -1 : 0;
}

void placement_free(struct placement *p)
{
    rankfile_free(p->rankfile);
    p->rankfile = NULL;
}

struct plan_want placement_want(const struct config *config)
{
    const struct placement *p = &config->placement;
    return (struct plan_want){.np = (uint32_t)config->num_proc,
                              .ppr = p->ppr,
                              .per_part = p->per_part,
                              .by_node = p->map_by == HVD__BINDING__MAP__BY_NODE,
                              .oversubscribe = p->oversubscribe,
                              .rankfile = p->rankfile,
                              .part = config->programs.part,
                              .parts = config->programs.part ? config->programs.count : 0};
}

void placement_binding(const struct config *config, Hvd__Binding *binding)
{
    const struct placement *p = &config->placement;
    hvd__binding__init(binding);
    binding->map_by = p->map_by;
    binding->bind_to = p->bind_to;
    binding->pe = p->pe;
    binding->per_part = p->per_part ? p->ppr : 0;
    binding->overload = p->oversubscribe;
    binding->gpu = (Hvd__Binding__Gpu)config->gpu_bind;
    binding->mps = (Hvd__Binding__Mps)config->mps;
    binding->report = config->report_bindings;
}
