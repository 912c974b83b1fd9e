/* Any words as hvdrun's command line, and any text as -x: parsed within the table's ranges, or refused as a
 * usage error. The input's lines are the words. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/cli/config.h"
#include "launcher/cli/environment.h"

#define WORDS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_values(const struct config *c)
{
    if (c->num_proc < 0 || c->num_proc > CONFIG_RANKS_MAX || c->ssh_port < 0 || c->ssh_port > 65535)
        abort();
    if (c->grace_ms < 0 || c->grace_ms > 86400000 || c->stdin_rank < CONFIG_STDIN_ALL)
        abort();
    if (c->hosts && c->hostfile)
        abort();
    if (!c->programs.count != (c->help || c->version || c->check_build || c->bash_completion))
        abort();
    for (size_t i = 0; i < c->programs.count; i++)
        if (!c->programs.item[i].command || !c->programs.item[i].command[0])
            abort();
}

static void build_environment(const struct config *c)
{
    char *envp[] = {"A=1", "AB=2", "RANK=3", "SSH_TTY=x", NULL};
    struct environment env;
    struct err e = ERR_INIT;
    if (environment_build(&env, envp, &c->set_env, &c->unset_env, false, &e) == 0)
        environment_free(&env);
    else if (e.code != ERR_USAGE)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *argv[WORDS + 2] = {"hvdrun"};
    int argc = 1;
    struct config c;
    struct err e = ERR_INIT;
    char *text = strndup((const char *)data, size), *at = text;
    for (char *word; at && argc <= WORDS && (word = strsep(&at, "\n"));)
        argv[argc++] = word;
    argv[argc] = NULL;
    if (config_parse(&c, argc, argv, NULL, &e) == 0) {
        check_values(&c);
        build_environment(&c);
        config_free(&c);
    } else if (e.code != ERR_USAGE || !e.text[0] || strchr(e.text, '\n')) {
        abort();
    }
    free(text);
    return 0;
}
