/* Module `yaml`: a configuration file as a list of settings, read with libyaml.
 *
 * The events of the file are taken one by one, and what the settings have no place for is refused at the
 * event that begins it, with its line: anything but a map at the top, a map in a map in a map, lists of
 * anything but values, a second document, tags, aliases. So nothing of the file is ever expanded or kept
 * twice: memory is bounded by its size, which the caller has bounded. On a refusal the settings so far are
 * freed. */
#include <stdbool.h>
#include <string.h>
#include <yaml.h>

#include "common/modules/yaml.h"
#include "common/process/module.h"

extern const char hvd_module_version[];

MODULE_DEFINE_VERSION;

/* One run. An event that was taken is deleted by the next. */
struct reading {
    struct settings *settings;
    const char *file;
    yaml_parser_t parser;
    yaml_event_t event;
    char map[SETTINGS_KEY_MAX + 1], key[SETTINGS_KEY_MAX + 1]; /* the open map and key; empty: none */
};

static int line_of(const struct reading *r)
{
    return (int)r->event.start_mark.line + 1;
}

static int refuse_event(const struct reading *r, const char *what, struct err *e)
{
    return err_set(e, ERR_USAGE, "%s:%d: %s", r->file, line_of(r), what);
}

/* libyaml's own words; it counts lines from 0. */
static int syntax_error(const struct reading *r, struct err *e)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return err_set(e, ERR_MEMORY, "no memory for %s", r->file);
    return err_set(e, ERR_USAGE, "%s:%zu: no YAML: %s%s%s", r->file,
                   p->error == YAML_READER_ERROR ? (size_t)1 : p->problem_mark.line + 1,
                   p->problem ? p->problem : "", p->context ? ", " : "", p->context ? p->context : "");
}

/* The next event; those that no file of ours may have are refused here. */
static int next_event(struct reading *r, struct err *e)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event))
        return syntax_error(r, e);
    const yaml_char_t *tag = r->event.type == YAML_SCALAR_EVENT           ? r->event.data.scalar.tag
                             : r->event.type == YAML_MAPPING_START_EVENT  ? r->event.data.mapping_start.tag
                             : r->event.type == YAML_SEQUENCE_START_EVENT ? r->event.data.sequence_start.tag
                                                                          : NULL;
    if (tag)
        return refuse_event(r, "tags (!) are not taken", e);
    if (r->event.type == YAML_ALIAS_EVENT)
        return refuse_event(r, "aliases (*) are not taken", e);
    return 0;
}

static bool is_null(const yaml_event_t *event)
{
    const char *value = (const char *)event->data.scalar.value;
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*value || strcmp(value, "~") == 0 || strcasecmp(value, "null") == 0);
}

static int add_setting(struct reading *r, enum setting_kind kind, struct err *e)
{
    bool scalar = kind == SETTING_VALUE || kind == SETTING_ITEM;
    const struct settings_entry entry = {
        .kind = kind,
        .line = line_of(r),
        .map = *r->map ? r->map : NULL,
        .key = r->key,
        .value = scalar ? (const char *)r->event.data.scalar.value : "",
        .len = scalar ? r->event.data.scalar.length : 0,
    };
    return settings_add(r->settings, r->file, &entry, e);
}

/* Behind the start of a list: values up to its end. */
static int read_list(struct reading *r, struct err *e)
{
    bool empty = true;
    for (;;) {
        if (next_event(r, e))
            return -1;
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return empty ? add_setting(r, SETTING_EMPTY, e) : 0;
        if (r->event.type != YAML_SCALAR_EVENT)
            return refuse_event(r, "a list may hold only values", e);
        if (add_setting(r, SETTING_ITEM, e))
            return -1;
        empty = false;
    }
}

/* The event is a key of the map we are in. */
static int take_key(struct reading *r, struct err *e)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return refuse_event(r, "a key must be a word", e);
    const char *key = (const char *)r->event.data.scalar.value;
    size_t len = r->event.data.scalar.length;
    if (len == 0 || len > SETTINGS_KEY_MAX || memchr(key, '\0', len))
        return refuse_event(r, "a key that is empty, too long or no text", e);
    memcpy(r->key, key, len + 1);
    int line = settings_line_of(r->settings, *r->map ? r->map : NULL, r->key);
    if (line)
        return err_set(e, ERR_USAGE, "%s:%d: %s%s%s stands in line %d already", r->file, line_of(r), r->map,
                       *r->map ? "." : "", r->key, line);
    return 0;
}

static int read_inner_map(struct reading *r, struct err *e);

static int read_value(struct reading *r, struct err *e)
{
    if (next_event(r, e))
        return -1;
    if (r->event.type == YAML_SCALAR_EVENT)
        return add_setting(r, is_null(&r->event) ? SETTING_NULL : SETTING_VALUE, e);
    if (r->event.type == YAML_SEQUENCE_START_EVENT)
        return read_list(r, e);
    return *r->map ? refuse_event(r, "a map in a map in a map", e) : read_inner_map(r, e);
}

/* Behind the start of a map: keys and values up to its end. */
static int read_map(struct reading *r, bool *empty, struct err *e)
{
    for (*empty = true;; *empty = false) {
        if (next_event(r, e))
            return -1;
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return 0;
        if (take_key(r, e) || read_value(r, e))
            return -1;
    }
}

static int read_inner_map(struct reading *r, struct err *e)
{
    memcpy(r->map, r->key, sizeof r->map);
    bool empty;
    if (read_map(r, &empty, e))
        return -1;
    memcpy(r->key, r->map, sizeof r->key);
    r->map[0] = '\0';
    return empty ? add_setting(r, SETTING_EMPTY, e) : 0;
}

/* At most one document, which is a map or nothing. */
static int read_stream(struct reading *r, struct err *e)
{
    if (next_event(r, e) || next_event(r, e)) /* the stream's start, then a document or the end */
        return -1;
    if (r->event.type == YAML_STREAM_END_EVENT)
        return 0;
    if (next_event(r, e))
        return -1;
    if (r->event.type == YAML_MAPPING_START_EVENT) {
        bool empty;
        if (read_map(r, &empty, e))
            return -1;
    } else if (r->event.type != YAML_SCALAR_EVENT || !is_null(&r->event)) {
        return refuse_event(r, "the file must be a map: lines with KEY: VALUE", e);
    }
    if (next_event(r, e) || next_event(r, e)) /* the document's end, then the stream's */
        return -1;
    return r->event.type == YAML_STREAM_END_EVENT ? 0 : refuse_event(r, "a second document", e);
}

int hvd_yaml_read(struct settings *s, const char *file, const char *bytes, size_t size, struct err *e)
{
    struct reading r = {.settings = s, .file = file};
    *s = (struct settings){0};
    if (size > SETTINGS_FILE_MAX)
        return err_set(e, ERR_USAGE, "%s: more than %d bytes", file, SETTINGS_FILE_MAX);
    if (!yaml_parser_initialize(&r.parser))
        return err_set(e, ERR_MEMORY, "no memory for %s", file);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)bytes, size);
    int rc = read_stream(&r, e);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    if (rc)
        settings_free(s);
    return rc;
}
