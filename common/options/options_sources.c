/* The weaker sources of options.h: variables, and the settings of a file. Each fills only what no stronger
 * one decided, but is checked whole nevertheless: a bad key of the file is named even where the command line
 * has another value. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/options/options_table.h"

/* ---- variables ----------------------------------------------------------------------------------------- */

static const char *variable_value(char *const envp[], const char *name, size_t len)
{
    for (; envp && *envp; envp++)
        if (strncmp(*envp, name, len) == 0 && (*envp)[len] == '=')
            return *envp + len + 1;
    return NULL;
}

/* Items by comma; the list keeps the copy into which they point. */
static int store_words(struct parsing *p, size_t row, struct option_origin from, const char *value,
                       struct err *e)
{
    struct option_list *list = (void *)(p->config + p->program->spec[row].offset);
    char *at = list->text = strdup(value);
    if (!at)
        return err_set(e, ERR_MEMORY, "no memory for %.*s", (int)from.len, from.name);
    for (char *word; (word = strsep(&at, ","));)
        if (option_store(p, row, OPTION_FROM_VARIABLE, from, word, e))
            return -1;
    return 0;
}

/* An empty variable counts as one that is not set, as everywhere in the shell's world. */
static int parse_row(struct parsing *p, size_t row, char *const envp[], struct err *e)
{
    const struct option_spec *spec = &p->program->spec[row];
    struct option_name name = {0};
    const char *value = NULL;
    while ((!value || !*value) && option_next_name(spec->variable, &name))
        value = variable_value(envp, name.text, name.len);
    if (!value || !*value || option_is_decided(p, row, OPTION_FROM_VARIABLE))
        return 0;
    struct option_origin from = {.name = name.text, .len = name.len, .opposite = name.opposite};
    return spec->type == OPTION_LIST ? store_words(p, row, from, value, e)
                                     : option_store(p, row, OPTION_FROM_VARIABLE, from, value, e);
}

int option_parse_variables(struct parsing *p, char *const envp[], struct err *e)
{
    for (size_t i = 0; i < p->program->count; i++)
        if (parse_row(p, i, envp, e))
            return -1;
    return 0;
}

/* ---- a file -------------------------------------------------------------------------------------------- */

/* The row with this key, and the spelling of it; -1 when there is none. */
static int find_key(const struct options_program *program, const char *key, size_t len,
                    struct option_name *name)
{
    for (size_t i = 0; i < program->count; i++) {
        *name = (struct option_name){0};
        while (option_next_name(program->spec[i].yaml, name))
            if (name->len == len && memcmp(name->text, key, len) == 0)
                return (int)i;
    }
    return -1;
}

/* Names the key among those that are ignored. */
static void note_ignored(struct settings *file, const char *key)
{
    static const char others[] = " and others";
    size_t used = strlen(file->ignored), room = sizeof file->ignored - sizeof others, len = strlen(key);
    if (used >= len && strcmp(file->ignored + used - len, key) == 0)
        return; /* the next item of a list */
    if (used + len + 2 <= room)
        snprintf(file->ignored + used, sizeof file->ignored - used, "%s%s", used ? ", " : "", key);
    else if (used < sizeof others || strcmp(file->ignored + used - (sizeof others - 1), others) != 0)
        snprintf(file->ignored + used, sizeof file->ignored - used, "%s", others);
}

/* 1: the key is none of these. */
static int parse_other_key(const struct options_program *program, struct settings *file,
                           const struct setting *s, struct err *e)
{
    const struct option_other_key *other = program->other_keys;
    char text[OPTION_WANTED_MAX];
    while (other && other->key && strcmp(other->key, s->key) != 0)
        other++;
    if (!other || !other->key)
        return 1;
    if (!other->words) {
        note_ignored(file, s->key);
        return 0;
    }
    if (s->kind == SETTING_VALUE && option_word_index(other->words, s->value) >= 0)
        return 0;
    option_join_words(other->words, text, sizeof text);
    return err_set(e, ERR_USAGE, "%s: '%.*s' is not %s", s->where, OPTION_SHOWN, s->value, text);
}

static int unknown_key(const struct options_program *program, struct settings *file, const struct setting *s,
                       struct err *e)
{
    struct option_name near = option_near_key(program, s->key, strlen(s->key));
    if (!near.len && program->ignores_keys) {
        note_ignored(file, s->key);
        return 0;
    }
    err_set(e, ERR_USAGE, "%.*sunknown key %s", (int)(s->key - s->where), s->where, s->key);
    if (near.len)
        return err_hint(e, "did you mean %.*s?", (int)near.len, near.text);
    return err_hint(e, "hvdrun.conf(5) lists the keys");
}

static int wrong_kind(const struct option_spec *spec, const struct setting *s, const char *what,
                      struct err *e)
{
    char wanted[OPTION_WANTED_MAX];
    option_wanted(spec, wanted, sizeof wanted);
    return err_set(e, ERR_USAGE, "%s: %s; it must be %s", s->where, what, wanted);
}

/* The text of the setting, as the row takes it; NULL with or without an error. */
static const char *text_of(const struct option_spec *spec, const struct setting *s, bool in_map,
                           struct err *e)
{
    if (spec->type == OPTION_LIST) {
        if (s->kind == SETTING_EMPTY && !in_map)
            return NULL;
        if (in_map && s->kind != SETTING_VALUE && s->kind != SETTING_NULL)
            wrong_kind(spec, s, "a list or a map", e);
        else if (!*s->pair)
            wrong_kind(spec, s, "it has no value", e);
    } else if (in_map) {
        wrong_kind(spec, s, "a map", e);
    } else if (s->kind == SETTING_NULL) {
        wrong_kind(spec, s, "it has no value", e);
    } else if (s->kind != SETTING_VALUE) {
        wrong_kind(spec, s, "a list or a map", e);
    }
    return e->code ? NULL : in_map ? s->pair : s->value;
}

/* The settings of the file so far for each row, and their keys. */
struct given {
    const struct setting *first[OPTIONS_MAX];
    const char *name[OPTIONS_MAX];
};

/* Two keys of one option; items of one list have one key. */
static int note_given(struct given *given, size_t row, const struct option_name *name,
                      const struct setting *s, struct err *e)
{
    if (given->first[row] && given->name[row] != name->text)
        return err_set(e, ERR_USAGE, "%s: sets the same as %s in line %d", s->where, given->first[row]->key,
                       given->first[row]->line);
    given->first[row] = s;
    given->name[row] = name->text;
    return 0;
}

/* Checks the value even where a stronger source has decided, into a field that is never read. */
static int check_only(const struct parsing *p, size_t row, struct option_origin from, const char *text,
                      struct err *e)
{
    struct option_spec spec = p->program->spec[row];
    const struct options_program program = {.spec = &spec, .count = 1};
    int64_t unused = 0;
    struct parsing alone = {.program = &program, .config = (char *)&unused};
    spec.offset = 0;
    return option_store(&alone, 0, OPTION_FROM_FILE, from, text, e);
}

static int parse_setting(struct parsing *p, struct settings *file, const struct setting *s,
                         struct given *given, struct err *e)
{
    struct option_name name;
    size_t len = strlen(s->key), top = strcspn(s->key, ".");
    int row = find_key(p->program, s->key, len, &name);
    bool in_map = row < 0 && s->key[top];
    int other = row < 0 ? parse_other_key(p->program, file, s, e) : 1;
    if (other <= 0)
        return other;
    if (in_map)
        row = find_key(p->program, s->key, top, &name);
    if (row < 0 ||
        (in_map && p->program->spec[row].type != OPTION_LIST && option_near_key(p->program, s->key, len).len))
        return unknown_key(p->program, file, s, e);
    const char *text = text_of(&p->program->spec[row], s, in_map, e);
    if (!text)
        return e->code ? -1 : 0;
    if (note_given(given, (size_t)row, &name, s, e))
        return -1;
    struct option_origin from = {.name = s->where, .len = strlen(s->where), .opposite = name.opposite};
    if (option_is_decided(p, (size_t)row, OPTION_FROM_FILE))
        return check_only(p, (size_t)row, from, text, e);
    return option_store(p, (size_t)row, OPTION_FROM_FILE, from, text, e);
}

int option_parse_file(struct parsing *p, struct settings *file, struct err *e)
{
    struct given given = {0};
    for (size_t i = 0; i < file->count; i++)
        if (parse_setting(p, file, &file->item[i], &given, e))
            return -1;
    return 0;
}

bool options_origin_of(char *const envp[], const struct settings *file, const char *text, char *name,
                       size_t size)
{
    /* Not the bytes are compared: a text of the result points into where it came from. */
    for (; envp && *envp; envp++) {
        size_t len = strcspn(*envp, "=");
        if ((*envp)[len] == '=' && *envp + len + 1 == text) {
            snprintf(name, size, "%.*s", (int)len, *envp);
            return true;
        }
    }
    for (size_t i = 0; file && i < file->count; i++)
        if (file->item[i].value == text || file->item[i].pair == text) {
            snprintf(name, size, "%s", file->item[i].where);
            return true;
        }
    return false;
}
