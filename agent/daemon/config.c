#include "agent/daemon/config.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/daemon/gpu/gpu_health.h"
#include "agent/daemon/state_file.h"
#include "common/modules/yaml.h"
#include "common/process/module.h"

static const struct option_spec specs[] = {
#define DAEMON_ROW(ctype, field, type, flags, metavar, yaml, min, max, words, default_, group, help)         \
    OPTION_ROW(struct daemon_config, field, type, flags, metavar, NULL, yaml, min, max, words, default_,     \
               NULL, group, help)
    DAEMON_OPTIONS(DAEMON_ROW)
#undef DAEMON_ROW
};

/* ---- the file ------------------------------------------------------------------------------------------ */

static int check_owner(const char *path, const struct stat *st, struct err *e)
{
    if (!S_ISREG(st->st_mode))
        return err_set(e, ERR_USAGE, "%s is not a regular file", path);
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return err_set(e, ERR_USAGE, "%s belongs to user %u, not to root", path, (unsigned)st->st_uid);
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return err_set(e, ERR_USAGE, "%s may be written by others than its owner (mode %03o)", path,
                       (unsigned)st->st_mode & 0777);
    if (st->st_size > SETTINGS_FILE_MAX)
        return err_set(e, ERR_USAGE, "%s has more than %d bytes", path, SETTINGS_FILE_MAX);
    return 0;
}

static int read_open(int fd, const char *path, struct settings *s, settings_read_fn *read_settings,
                     struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "cannot read %s", path);
    if (check_owner(path, &st, e) < 0)
        return -1;
    char *bytes = malloc(SETTINGS_FILE_MAX);
    ssize_t n = bytes ? read(fd, bytes, SETTINGS_FILE_MAX) : -1;
    int rc = n < 0 ? err_sys(e, bytes ? errno : ENOMEM, "cannot read %s", path)
                   : read_settings(s, path, bytes, (size_t)n, e);
    free(bytes);
    return rc;
}

static struct settings *read_file(void *context, struct err *e)
{
    struct daemon_config *c = context;
    const char *path = c->file ? c->file : DAEMON_CONFIG;
    settings_read_fn *read_settings = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && !c->file)
        return NULL;
    if (fd < 0) {
        err_sys(e, errno, "cannot read %s", path);
        return NULL;
    }
    *(void **)&read_settings = module_symbol(YAML_MODULE, YAML_SYMBOL, e);
    int rc = read_settings ? read_open(fd, path, &c->settings, read_settings, e) : -1;
    close(fd);
    return rc < 0 ? NULL : &c->settings;
}

const struct options_program daemon_program = {
    .name = "hvdagent daemon",
    .usage = "[options]",
    .about = "The managed agent of a node. It gives slots to the jobs of users, and asks systemd to start a "
             "session for each job. systemd starts the managed agent, as root.",
    .spec = specs,
    .count = sizeof specs / sizeof *specs,
    .read_file = read_file,
};

/* ---- names --------------------------------------------------------------------------------------------- */

static bool is_number(const char *text, unsigned long *number)
{
    char *end;
    errno = 0;
    *number = strtoul(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !*end && !errno && *number < UINT32_MAX;
}

static int find_users(struct daemon_config *c, struct err *e)
{
    unsigned long number;
    c->allowed_users = calloc(c->users.count + 1, sizeof *c->allowed_users);
    if (!c->allowed_users)
        return err_set(e, ERR_MEMORY, "no memory for the list of users");
    for (size_t i = 0; i < c->users.count; i++) {
        struct passwd *p = is_number(c->users.item[i], &number) ? NULL : getpwnam(c->users.item[i]);
        if (!p && !is_number(c->users.item[i], &number))
            return err_set(e, ERR_USAGE, "users: there is no user %s", c->users.item[i]);
        c->allowed_users[c->allowed_user_count++] = p ? p->pw_uid : (uid_t)number;
    }
    return 0;
}

static int find_groups(struct daemon_config *c, struct err *e)
{
    unsigned long number;
    c->allowed_groups = calloc(c->groups.count + 1, sizeof *c->allowed_groups);
    if (!c->allowed_groups)
        return err_set(e, ERR_MEMORY, "no memory");
    for (size_t i = 0; i < c->groups.count; i++) {
        struct group *g = is_number(c->groups.item[i], &number) ? NULL : getgrnam(c->groups.item[i]);
        if (!g && !is_number(c->groups.item[i], &number))
            return err_set(e, ERR_USAGE, "groups: there is no group %s", c->groups.item[i]);
        c->allowed_groups[c->allowed_group_count++] = g ? g->gr_gid : (gid_t)number;
    }
    return 0;
}

bool daemon_config_allows(const struct daemon_config *c, uid_t uid, const gid_t *groups, size_t count)
{
    if (uid == 0 || (c->allowed_user_count == 0 && c->allowed_group_count == 0))
        return true;
    for (size_t i = 0; i < c->allowed_user_count; i++)
        if (c->allowed_users[i] == uid)
            return true;
    for (size_t i = 0; i < c->allowed_group_count; i++)
        for (size_t k = 0; k < count; k++)
            if (c->allowed_groups[i] == groups[k])
                return true;
    return false;
}

/* ---- GPUs ---------------------------------------------------------------------------------------------- */

static int find_checks(struct daemon_config *c, struct err *e)
{
    static const struct {
        const char *name;
        unsigned check;
    } names[] = {{"driver", GPU_CHECK_DRIVER},
                 {"temperature", GPU_CHECK_TEMPERATURE},
                 {"ecc", GPU_CHECK_ECC},
                 {"xid", GPU_CHECK_XID},
                 {"none", 0}};
    c->gpu_check_set = c->gpu_checks.count ? 0 : GPU_CHECK_ALL;
    for (size_t i = 0; i < c->gpu_checks.count; i++) {
        size_t k = 0, count = sizeof names / sizeof *names;
        while (k < count && strcmp(c->gpu_checks.item[i], names[k].name) != 0)
            k++;
        if (k == count || (names[k].check == 0 && c->gpu_checks.count > 1))
            return err_set(e, ERR_USAGE,
                           "gpu_checks: %s is none of driver, temperature, ecc, xid, or none alone",
                           c->gpu_checks.item[i]);
        c->gpu_check_set |= names[k].check;
    }
    if (!gpu_xids_check(c->gpu_xids))
        return err_set(e, ERR_USAGE, "gpu_xids: %s is no list of numbers such as 48,79", c->gpu_xids);
    return 0;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

int daemon_config_read(struct daemon_config *c, int argc, char *const argv[], struct err *e)
{
    int operand = argc;
    *c = (struct daemon_config){0};
    if (options_parse(&daemon_program, argc, argv, NULL, c, &operand, e) < 0) {
        settings_free(&c->settings);
        return -1;
    }
    if (!c->help && operand < argc)
        err_set(e, ERR_USAGE, "unexpected argument: %s", argv[operand]);
    if (!e->code && c->drain && strlen(c->drain) >= DRAIN_MAX)
        err_set(e, ERR_USAGE, "drain: the reason has more than %d bytes", DRAIN_MAX - 1);
    if (c->help || (!e->code && find_users(c, e) == 0 && find_groups(c, e) == 0 && find_checks(c, e) == 0))
        return 0;
    daemon_config_free(c);
    return -1;
}

void daemon_config_free(struct daemon_config *c)
{
    options_free(&daemon_program, c);
    settings_free(&c->settings);
    free(c->allowed_users);
    free(c->allowed_groups);
    *c = (struct daemon_config){0};
}
