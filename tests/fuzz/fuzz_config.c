/* Any bytes as a configuration file: settings within their bounds and options within the table's, or one
 * usage error that names the file. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/modules/yaml.h"
#include "launcher/cli/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct settings file;

static struct settings *given(void *config, struct err *e)
{
    (void)config;
    return e->code ? NULL : &file;
}

static void check_values(const struct config *c)
{
    if (c->num_proc < 0 || c->num_proc > CONFIG_RANKS_MAX || c->ssh_port < 0 || c->ssh_port > 65535)
        abort();
    if (c->grace_ms < 0 || c->grace_ms > 86400000 || c->stdin_rank < CONFIG_STDIN_ALL)
        abort();
    if ((c->hosts && c->hostfile) || c->set_env.count + c->unset_env.count > SETTINGS_MAX)
        abort();
    for (size_t i = 0; i < c->set_env.count; i++)
        if (!*c->set_env.item[i])
            abort();
}

static void check_error(const struct err *e)
{
    if (e->code != ERR_USAGE || !e->text[0] || strchr(e->text, '\n'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct options_program program = config_program;
    char *argv[] = {"hvdrun", "cmd", NULL};
    int operand;
    struct config c = {0};
    struct err e = ERR_INIT;
    program.read_file = given;
    if (hvd_yaml_read(&file, "job.yaml", (const char *)data, size, &e)) {
        check_error(&e);
        return 0;
    }
    if (file.count > SETTINGS_MAX)
        abort();
    if (options_parse(&program, 2, argv, NULL, &c, &operand, &e) == 0) {
        check_values(&c);
        options_free(&program, &c);
    } else {
        check_error(&e);
        if (strncmp(e.text, "job.yaml:", 9) != 0)
            abort();
    }
    settings_free(&file);
    return 0;
}
