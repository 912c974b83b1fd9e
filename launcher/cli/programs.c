/* The line is read program by program, with the one table of options: of the later ones most rows are
 * refused by name. */
#include "launcher/cli/programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "launcher/cli/config.h"

static struct settings *same_file(void *context, struct err *e)
{
    struct config *part = context;
    (void)e;
    return part->file.count ? &part->file : NULL; /* of the job, which has read it */
}

int programs_end(int argc, char *const argv[], int from)
{
    while (from < argc && strcmp(argv[from], ":") != 0)
        from++;
    return from;
}

static int colon_hint(struct err *e)
{
    return err_hint(
        e, "':' separates programs; behind -- it is a word of the command, as in hvdrun -np 1 -- echo :");
}

/* Adds the program of which the command is argv[from] to argv[end - 1]. */
static int add_program(struct programs *p, const struct config *part, char *const argv[], char *const envp[],
                       int from, int end, struct err *e)
{
    char name[64];
    bool own = part->hosts && !options_origin_of(envp, &part->file, part->hosts, name, sizeof name);
    const char *hosts = own ? part->hosts : NULL;
    struct program *more = reallocarray(p->item, p->count + 1, sizeof *more);
    char **command = calloc((size_t)(end - from) + 1, sizeof *command);
    if (more)
        p->item = more;
    if (!more || !command) {
        free(command);
        return err_set(e, ERR_MEMORY, "no memory for the command line");
    }
    memcpy(command, argv + from, (size_t)(end - from) * sizeof *command);
    p->item[p->count++] = (struct program){.command = command,
                                           .ranks = (uint32_t)part->num_proc,
                                           .set_env = part->set_env,
                                           .unset_env = part->unset_env,
                                           .wdir = part->wdir,
                                           .hosts = hosts};
    return 0;
}

/* The program whose options follow the ':' at argv[at]; *next becomes where it ends. */
static int parse_next(struct config *config, int argc, char *const argv[], char *const envp[], int at,
                      int *next, struct err *e)
{
    struct options_program program = config_program;
    struct config part = {.file = config->file};
    int operand, end = programs_end(argc, argv, at + 1);
    program.read_file = same_file;
    program.only = "-np, -H, -x, --unset, --wdir";
    program.only_why = "is of the whole job: it stands before the first program, not behind ':'";
    if (options_parse(&program, end - at, argv + at, envp, &part, &operand, e))
        return -1;
    if (operand > 1 && strcmp(argv[at + operand - 1], "--") == 0)
        end = argc;
    *next = end;
    int rc = add_program(&config->programs, &part, argv, envp, at + operand, end, e);
    if (rc)
        options_free(&program, &part);
    return rc;
}

static int no_command(size_t i, size_t count, struct err *e)
{
    if (count == 1) {
        err_set(e, ERR_USAGE, "no command: what shall the ranks run?");
        return err_hint(e, "usage: %s %s", config_program.name, config_program.usage);
    }
    if (i == 0)
        err_set(e, ERR_USAGE, "no command before the first ':'");
    else
        err_set(e, ERR_USAGE, "no command behind ':' number %zu", i);
    return colon_hint(e);
}

/* Checks each program and gives it its ranks. */
static int check_program(struct config *config, struct err *e)
{
    struct programs *p = &config->programs;
    int64_t ranks = 0;
    for (size_t i = 0; i < p->count; i++) {
        struct program *own = &p->item[i];
        if (!own->command[0])
            return no_command(i, p->count, e);
        if (!*own->command[0])
            return err_set(e, ERR_USAGE, "the command is an empty word");
        if (p->count > 1 && !own->ranks) {
            err_set(e, ERR_USAGE,
                    "-np is missing before %s: with several programs each says its number of ranks",
                    own->command[0]);
            return colon_hint(e);
        }
        own->first = (uint32_t)ranks;
        ranks += own->ranks;
        if (ranks > CONFIG_RANKS_MAX)
            return err_set(e, ERR_USAGE, "-np: all programs together have more than %d ranks",
                           CONFIG_RANKS_MAX);
    }
    config->num_proc = ranks;
    return 0;
}

int programs_parse(struct config *config, int argc, char *const argv[], char *const envp[], int operand,
                   int end, struct err *e)
{
    if (operand > 1 && strcmp(argv[operand - 1], "--") == 0)
        end = argc;
    if (add_program(&config->programs, config, argv, envp, operand, end, e))
        return -1;
    while (end + 1 < argc) /* a lone ':' at the end separates nothing, as for mpirun */
        if (parse_next(config, argc, argv, envp, end, &end, e))
            return -1;
    return check_program(config, e);
}

size_t programs_of(const struct programs *p, uint32_t rank)
{
    size_t i = p->count - 1;
    while (i > 0 && p->item[i].first > rank)
        i--;
    return i;
}

static void put_command(const struct program *p, struct json *to)
{
    json_array(to, "command");
    for (char *const *word = p->command; *word; word++)
        json_text(to, NULL, *word);
    json_end(to);
}

void programs_put(const struct programs *p, struct json *to)
{
    put_command(&p->item[0], to);
    json_array(to, "programs");
    for (size_t i = 0; i < p->count; i++) {
        const struct program *own = &p->item[i];
        json_object(to, NULL);
        json_unsigned(to, "first_rank", own->first);
        json_known_unsigned(to, "ranks", own->ranks > 0, own->ranks);
        json_text(to, "wdir", own->wdir);
        put_command(own, to);
        json_end(to);
    }
    json_end(to);
}

bool programs_have_word(const struct programs *p, const char *word)
{
    for (size_t i = 0; i < p->count; i++)
        for (char *const *own = p->item[i].command; *own; own++)
            if (*own == word)
                return true;
    return false;
}

void programs_free(struct programs *p)
{
    for (size_t i = 0; i < p->count; i++) {
        struct program *own = &p->item[i];
        if (p->part)
            free(p->part[i].place);
        free(own->command);
        if (i == 0)
            continue; /* its lists are the configuration's */
        free(own->set_env.item);
        free(own->set_env.text);
        free(own->unset_env.item);
        free(own->unset_env.text);
    }
    free(p->item);
    free(p->part);
    *p = (struct programs){0};
}

/* ---- -H of each program -------------------------------------------------------------------------------- */

#define COMMAND_SHOWN 60

bool program_hosts_any(const struct programs *p)
{
    for (size_t i = 1; i < p->count; i++)
        if (p->item[i].hosts)
            return true;
    return false;
}

/* Its index; hosts->count: it is none of them. `guess` is tried first. */
static size_t find_host(const struct host_list *hosts, const char *name, size_t guess)
{
    size_t i = guess < hosts->count ? guess : 0;
    for (size_t tried = 0; tried < hosts->count; tried++, i = i + 1 < hosts->count ? i + 1 : 0)
        if (strcasecmp(hosts->host[i].name, name) == 0)
            return i;
    return hosts->count;
}

/* The host moves into the list. */
static int append_host(struct host_list *hosts, struct host_spec *own, struct err *e)
{
    struct host_spec *more = reallocarray(hosts->host, hosts->count + 1, sizeof *more);
    if (!more || hosts->count >= HOSTS_MAX) {
        hosts->host = more ? more : hosts->host;
        return more ? err_set(e, ERR_USAGE, "the programs have more than %d hosts", HOSTS_MAX)
                    : err_set(e, ERR_MEMORY, "no memory for the list of hosts");
    }
    hosts->host = more;
    more[hosts->count] = *own;
    hosts->count++;
    own->name = own->user = NULL;
    return 0;
}

/* Two programs name one host: the larger number of slots wins, and a number wins over none. */
static void merge_host(struct host_spec *host, const struct host_spec *own)
{
    if (own->slots > host->slots) {
        host->slots = own->slots;
        host->bare = own->bare;
    }
    if (own->line < host->line)
        host->line = own->line;
}

static int join_host(struct host_list *hosts, struct host_spec *own, size_t *at, bool all, const char *from,
                     struct err *e)
{
    *at = find_host(hosts, own->name, *at);
    if (*at == hosts->count && all) {
        err_set(e, ERR_USAGE, "%s: %s is none of the job's hosts", from, own->name);
        return err_hint(e, "name it in the hostfile, or ask the batch system for it");
    }
    if (*at == hosts->count)
        return append_host(hosts, own, e);
    struct host_spec *host = &hosts->host[*at];
    if (own->user && (!host->user || strcmp(own->user, host->user) != 0))
        return err_set(e, ERR_USAGE, "%s: %s@%s was named before with another user", from, own->user,
                       own->name);
    if (!all)
        merge_host(host, own);
    return 0;
}

/* The hosts of one program, in the order of its -H. */
static int join_program(struct plan_part *part, const struct program *p, size_t number,
                        struct host_list *hosts, bool all, struct err *e)
{
    char from[COMMAND_SHOWN + 64];
    struct host_list own;
    size_t at = 0;
    snprintf(from, sizeof from, "-H of program %zu (%.*s)", number, COMMAND_SHOWN, p->command[0]);
    if (hosts_parse(&own, p->hosts, from, e))
        return -1;
    part->place = calloc(own.count, sizeof *part->place);
    int rc = part->place ? 0 : err_set(e, ERR_MEMORY, "no memory for the list of hosts");
    for (size_t i = 0; rc == 0 && i < own.count; i++) {
        uint32_t slots = own.host[i].slots;
        rc = join_host(hosts, &own.host[i], &at, all, from, e);
        part->place[part->count++] = (struct plan_place){(uint32_t)at, slots};
        at++;
    }
    hosts_free(&own);
    return rc;
}

int program_hosts_join(struct config *config, struct host_list *hosts, bool all, struct err *e)
{
    struct programs *p = &config->programs;
    if (!program_hosts_any(p))
        return 0;
    if (config->rankfile)
        return err_set(e, ERR_USAGE, "--rankfile says where each rank goes: -H of a program excludes it");
    p->part = calloc(p->count, sizeof *p->part);
    if (!p->part)
        return err_set(e, ERR_MEMORY, "no memory for %zu programs", p->count);
    for (size_t i = 0; i < p->count; i++) {
        p->part[i].ranks = p->item[i].ranks;
        if (p->item[i].hosts && join_program(&p->part[i], &p->item[i], i + 1, hosts, all, e))
            return -1;
    }
    return 0;
}
