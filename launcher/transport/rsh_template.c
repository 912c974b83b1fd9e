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
 *      that it lacks of `exec -i {host} -- /bin/sh -c`: see rsh_named.c. */
#include "launcher/transport/rsh_template.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/transport/rsh_named.h"

int rsh_argv_push(struct rsh_argv *argv, const char *word, struct err *e)
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

static int split(const char *rsh, struct rsh_argv *words, struct err *e)
{
    char *word = malloc(strlen(rsh) + 1);
    int rc = word ? 0 : err_set(e, ERR_MEMORY, "no memory for --rsh");
    while (rc == 0) {
        rsh += strspn(rsh, " \t\n");
        if (!*rsh)
            break;
        rsh = next_word(rsh, word);
        rc = rsh ? rsh_argv_push(words, word, e) : err_set(e, ERR_USAGE, "--rsh: a quote is not closed");
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

/* The words of a template, and what a named one adds to them. */
static int read_words(const char *rsh, struct rsh_argv *words, struct err *e)
{
    if (split(rsh_named(rsh), words, e) < 0)
        return -1;
    return rsh_named_complete(words, e);
}

static int check_user(const char *rsh, const struct rsh_argv *words, const char *user, const char *host,
                      struct err *e)
{
    if (!rsh_named_knows_no_user(rsh, words))
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
    if (rsh_argv_push(argv, "-o", e) < 0 || rsh_argv_push(argv, "BatchMode=yes", e) < 0)
        return -1;
    /* No pseudo terminal, whatever the configuration says: it would change bytes. */
    if (rsh_argv_push(argv, "-T", e) < 0)
        return -1;
    if (target->port && !port_placed &&
        (rsh_argv_push(argv, "-p", e) < 0 || rsh_argv_push(argv, port, e) < 0))
        return -1;
    if (target->identity_file &&
        (rsh_argv_push(argv, "-i", e) < 0 || rsh_argv_push(argv, target->identity_file, e) < 0))
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
    return rsh_argv_push(argv, destination, e);
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
        if (rsh_argv_push(argv, filled, e) < 0)
            return -1;
        if (i == 0 && rsh_is_program(filled, "ssh") && push_ssh_options(argv, target, port_placed, e) < 0)
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
        rc = rsh_argv_push(argv, target->command, e);
    rsh_argv_free(&words);
    return rc;
}
