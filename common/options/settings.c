#include "common/options/settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 64 /* the array grows by so many */

static int check_text(const char *file, const struct settings_entry *n, struct err *e)
{
    if (memchr(n->value, '\0', n->len))
        return err_set(e, ERR_USAGE, "%s:%d: a value with a zero byte", file, n->line);
    for (const char *key = n->map ? n->map : n->key; key; key = key == n->map ? n->key : NULL) {
        if (!*key || strlen(key) > SETTINGS_KEY_MAX)
            return err_set(e, ERR_USAGE, "%s:%d: a key must have 1 to %d bytes", file, n->line,
                           SETTINGS_KEY_MAX);
        for (const char *c = key; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                return err_set(e, ERR_USAGE, "%s:%d: a key with a control character", file, n->line);
    }
    return 0;
}

/* "map.key" begins at the key of a setting and ends there, or, for a key at the top, where the keys of its
 * map begin. */
static bool is_key(const struct setting *s, const char *map, const char *key)
{
    size_t map_len = map ? strlen(map) : 0, key_len = strlen(key);
    const char *at = s->key;
    if (map && (strncmp(at, map, map_len) != 0 || at[map_len] != '.'))
        return false;
    at += map ? map_len + 1 : 0;
    return strncmp(at, key, key_len) == 0 && (!at[key_len] || (!map && at[key_len] == '.'));
}

int settings_line_of(const struct settings *s, const char *map, const char *key)
{
    for (size_t i = 0; i < s->count; i++)
        if (is_key(&s->item[i], map, key))
            return s->item[i].line;
    return 0;
}

/* Makes one allocation for both texts of a setting: `where`, and behind it `pair`. */
static int fill_setting(struct setting *s, const char *file, const struct settings_entry *n, struct err *e)
{
    const char *map = n->map ? n->map : "", *dot = n->map ? "." : "";
    int before = snprintf(NULL, 0, "%s:%d: ", file, n->line);
    int used = snprintf(NULL, 0, "%s:%d: %s%s%s", file, n->line, map, dot, n->key) + 1;
    size_t name = n->map ? strlen(n->key) : 0, total = (size_t)used + name + n->len + 2;
    char *where = malloc(total);
    if (!where)
        return err_set(e, ERR_MEMORY, "no memory for %s", file);
    snprintf(where, total, "%s:%d: %s%s%s", file, n->line, map, dot, n->key);
    char *pair = where + used;
    bool bare = n->kind == SETTING_NULL || n->kind == SETTING_EMPTY;
    *s = (struct setting){
        .kind = n->kind, .line = n->line, .where = where, .key = where + before, .pair = pair};
    if (n->map) {
        memcpy(pair, n->key, name);
        pair += name;
        *pair = '=';
        pair += !bare;
    }
    memcpy(pair, n->value, bare ? 0 : n->len);
    pair[bare ? 0 : n->len] = '\0';
    s->value = pair;
    return 0;
}

int settings_add(struct settings *s, const char *file, const struct settings_entry *entry, struct err *e)
{
    if (s->count == SETTINGS_MAX)
        return err_set(e, ERR_USAGE, "%s:%d: more than %d values", file, entry->line, SETTINGS_MAX);
    struct setting added;
    if (check_text(file, entry, e) || fill_setting(&added, file, entry, e))
        return -1;
    if (s->count % ROOM == 0) {
        struct setting *more = reallocarray(s->item, s->count + ROOM, sizeof *more);
        if (!more) {
            free((char *)added.where);
            return err_set(e, ERR_MEMORY, "no memory for %s", file);
        }
        s->item = more;
    }
    s->item[s->count++] = added;
    return 0;
}

void settings_free(struct settings *s)
{
    for (size_t i = 0; i < s->count; i++)
        free((char *)s->item[i].where);
    free(s->item);
    *s = (struct settings){0};
}
