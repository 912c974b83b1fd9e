/* The settings of a configuration file: keys with values, each with its line.
 *
 * The reader (module yaml) knows the file's language and nothing of options; the option table (options.h)
 * knows the keys and nothing of files. Between them stands this list, in the order of the file:
 *
 *   num_proc: 4                 num_proc = 4
 *   autotune:
 *     warmup_samples: 5         autotune.warmup_samples = 5
 *   unset: [A, B*]              unset = A, unset = B*, both marked as items
 *
 * A setting is one block of memory; texts of options point into it, so the list lives as long as they do. */
#pragma once

#include <stddef.h>

#include "common/base/err.h"

#define SETTINGS_FILE_MAX (256 * 1024) /* bytes of a file */
#define SETTINGS_MAX      4096         /* values in it */
#define SETTINGS_KEY_MAX  256          /* bytes of a key */

enum setting_kind {
    SETTING_VALUE,
    SETTING_ITEM, /* one of a list */
    SETTING_NULL, /* a key without a value: `key:` or `key: ~` */
    SETTING_EMPTY /* an empty list or map */
};

struct setting {
    enum setting_kind kind;
    int line;
    const char *where; /* "job.yaml:3: autotune.enabled", as messages begin */
    const char *key;   /* in `where`: "autotune.enabled" */
    const char *value; /* in `pair`; empty without one */
    const char *pair;  /* of a key in a map "enabled=VALUE", without value "enabled"; else the value */
};

struct settings {
    struct setting *item;
    size_t count;
    char ignored[256]; /* keys of no meaning here, as "a, b and others"; empty: there are none */
};

/* One entry of a file: `map` is the key of the map around it (NULL at the top), `value` has `len` bytes. */
struct settings_entry {
    enum setting_kind kind;
    int line;
    const char *map, *key, *value;
    size_t len;
};

/* The line of a key that stands in the list already, with its own value or as a map; 0 when it does not. */
int settings_line_of(const struct settings *s, const char *map, const char *key);
/* Adds one; refuses bytes that no text can hold, and more than SETTINGS_MAX. */
int settings_add(struct settings *s, const char *file, const struct settings_entry *entry, struct err *e);
void settings_free(struct settings *s);

/* How a module reads the bytes of a file; -1 with *e (ERR_USAGE, naming file and line) and nothing to free.
 */
typedef int settings_read_fn(struct settings *s, const char *file, const char *bytes, size_t size,
                             struct err *e);
