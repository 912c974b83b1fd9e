/* Quoting happens twice. The script's own values are quoted for /bin/sh; the script is then quoted for the
 * login shell, which may be anything. Inside '...' sh and bash take everything literally; csh also expands
 * `!` there, fish also takes \ before \ and ' - so for the outer level each of ' ! \ is put outside the
 * quotes with a backslash before it, which all of them read alike. A newline cannot be carried through csh:
 * paths that have one are refused. */
#include "launcher/transport/agent_command.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define SCRIPT_MAX (8 * PATH_MAX)

/* Appends `text` in single quotes, each of `special` outside of them behind a backslash. */
static int quote_word(char *out, size_t size, const char *text, const char *special)
{
    size_t len = 0;
    if (size < 3)
        return -1;
    out[len++] = '\'';
    for (; *text; text++) {
        if (len + 6 > size)
            return -1;
        if (strchr(special, *text)) {
            out[len++] = '\'';
            out[len++] = '\\';
            out[len++] = *text;
            out[len++] = '\'';
        } else {
            out[len++] = *text;
        }
    }
    out[len++] = '\'';
    out[len] = '\0';
    return 0;
}

/* The arguments, each quoted for /bin/sh. */
static int quote_all(char *out, size_t size, char *const *arguments)
{
    size_t used = 0;
    for (out[0] = '\0'; *arguments; arguments++) {
        if (used + 4 > size || strchr(*arguments, '\n'))
            return -1;
        out[used++] = ' ';
        if (quote_word(out + used, size - used, *arguments, "'") < 0)
            return -1;
        used += strlen(out + used);
    }
    return 0;
}

static int write_script(const char *agent, const char *also, const char *arguments, char *script, size_t size)
{
    /* `command -v` would also find an alias or a function of the same name; exec of a path does not. */
    int n = snprintf(script, size,
                     "a=%s; [ -f \"$a\" ] && [ -x \"$a\" ] && exec \"$a\"%s; "
                     "%s%s%s"
                     "echo \"no hvdagent: looked for $a%s\" >&2; exit 127",
                     agent, arguments, also ? "p=$(command -v hvdagent) && [ -x \"$p\" ] && exec \"$p\"" : "",
                     also ? arguments : "", also ? "; " : "", also ? also : "");
    return n < 0 || (size_t)n >= size ? -1 : 0;
}

int agent_command_wrap(const char *script, char *out, size_t size)
{
    int n = snprintf(out, size, "exec /bin/sh -c ");
    if (n < 0 || (size_t)n >= size || strchr(script, '\n'))
        return -1;
    return quote_word(out + n, size - (size_t)n, script, "'!\\");
}

int agent_command_quote(const char *text, char *out, size_t size)
{
    size_t used = strlen(out);
    return quote_word(out + used, size - used, text, "'");
}

int agent_command(const char *dir, const char *agent_path, char *const *arguments, char *out, size_t size,
                  struct err *e)
{
    char agent[PATH_MAX], quoted[4 * PATH_MAX], words[512], script[SCRIPT_MAX];
    int n = agent_path ? snprintf(agent, sizeof agent, "%s", agent_path)
                       : snprintf(agent, sizeof agent, "%s/hvdagent", dir);
    if (n < 0 || (size_t)n >= sizeof agent)
        return err_set(e, ERR_USAGE, "the path of hvdagent is too long");
    if (strchr(agent, '\n'))
        return err_set(e, ERR_USAGE, "the path of hvdagent has a line break in it");
    if (quote_all(words, sizeof words, arguments) < 0)
        return err_set(e, ERR_USAGE, "the arguments of hvdagent are too long");
    if (quote_word(quoted, sizeof quoted, agent, "'") < 0 ||
        write_script(quoted, agent_path ? NULL : " and on PATH", words, script, sizeof script) < 0)
        return err_set(e, ERR_USAGE, "the path of hvdagent is too long");
    if (agent_command_wrap(script, out, size) < 0)
        return err_set(e, ERR_USAGE, "the path of hvdagent is too long");
    return 0;
}
