#include "launcher/placement.h"

#include <string.h>
#include <strings.h>

#include "launcher/config.h"

#define MAP_BY_WANTED "--map-by must be slot or node, with :OVERSUBSCRIBE behind it or nothing"

static bool is_word(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && strncasecmp(text, word, len) == 0;
}

/* WORD[:MODIFIER]... */
static int parse_map_by(struct placement *p, const char *text, struct err *e)
{
    size_t len = strcspn(text, ":");
    p->by_node = is_word(text, len, "node");
    if (!p->by_node && !is_word(text, len, "slot"))
        return err_set(e, ERR_USAGE, MAP_BY_WANTED ", not '%s'", text);
    for (const char *at = text + len; *at == ':'; at += len) {
        len = strcspn(++at, ":");
        if (!is_word(at, len, "oversubscribe"))
            return err_set(e, ERR_USAGE, MAP_BY_WANTED ", not '%s'", text);
        p->oversubscribe = true;
    }
    return 0;
}

int placement_parse(struct placement *p, const struct config *config, struct err *e)
{
    *p = (struct placement){.per_host = (uint32_t)config->ppr};
    if (parse_map_by(p, config->map_by, e) < 0)
        return -1;
    if (p->oversubscribe && config->no_oversubscribe)
        return err_set(e, ERR_USAGE, "--map-by %s and --no-oversubscribe exclude each other", config->map_by);
    p->oversubscribe |= config->oversubscribe;
    return 0;
}

struct plan_want placement_want(const struct config *config)
{
    const struct placement *p = &config->placement;
    return (struct plan_want){.np = (uint32_t)config->num_proc,
                              .per_host = p->per_host,
                              .by_node = p->by_node,
                              .oversubscribe = p->oversubscribe};
}
