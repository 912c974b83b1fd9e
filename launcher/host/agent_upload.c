#include "launcher/host/agent_upload.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/net/auth.h"
#include "common/process/module.h"
#include "common/protocol/message.h"
#include "launcher/transport/agent_command.h"

#define FILES_MAX  8
#define SCRIPT_MAX (32u << 10)
#define WORD_MAX   (4 * PATH_MAX + 64)
#define HEX_SIZE   (2 * AUTH_DIGEST_SIZE + 1)

/* Before the body the script begins a function and sets variables: agent, found, words, job, version,
 * platform, total, sums, way, build and parts (a function).
 *
 * The whole script is one function that is called at the end, so half a script does nothing. */
static const char body[] =
    "say() { printf '\\nhvd-send %s %s\\n' \"$job\" \"$1\"; }\n"
    "no() { echo \"$1\" >&2; exit 126; }\n"
    "runs() { [ -f \"$1\" ] && [ -x \"$1\" ] && [ \"$(\"$1\" --version 2>/dev/null </dev/null)\" = "
    "\"$version\" ]; }\n"
    "whole() { (cd \"$1\" && printf '%s\\n' \"$sums\" | sha256sum -c) >/dev/null 2>&1; }\n"
    "part() { tail -c \"+$(($1 + 1))\" \"$d/all\" | head -c \"$2\" >\"$d/$3\" && chmod 700 \"$d/$3\"; }\n"
    "for a in \"$agent\" \"$found\"; do\n"
    "    if [ -n \"$a\" ] && runs \"$a\"; then say have; exec \"$a\" $words; fi\n"
    "done\n"
    "here=$(uname -s)/$(uname -m)\n"
    "[ \"$here\" = \"$platform\" ] ||\n"
    "    no \"hvdagent cannot be sent: this host is $here, hvdrun's is $platform\"\n"
    "for a in head tail mktemp sha256sum df; do\n"
    "    command -v $a >/dev/null 2>&1 || no \"hvdagent cannot be sent: there is no $a on this host\"\n"
    "done\n"
    "umask 077\n"
    "d=\n"
    "trap '[ -z \"$d\" ] || rm -rf \"$d\"' EXIT\n"
    "trap 'exit 1' HUP INT TERM\n"
    /* A base where somebody else could rename what is ours is passed over, and one that is full. */
    "fits() { set -- $(df -Pk \"$1\" 2>/dev/null | tail -n 1); [ \"${4:-0}\" -gt $((total / 512 + 64)) ]; }\n"
    "make() {\n"
    "    case $1 in /*) ;; *) return 1 ;; esac\n"
    "    [ -d \"$1\" ] && { [ -O \"$1\" ] || [ -k \"$1\" ]; } && fits \"$1\" || return 1\n"
    "    d=$(mktemp -d \"$1/$2.XXXXXXXX\" 2>/dev/null) || { d=; return 1; }\n"
    "    printf '#!/bin/sh\\n' >\"$d/x\" && chmod 700 \"$d/x\" && \"$d/x\" 2>/dev/null && mkdir "
    "\"$d/modules\" && return\n"
    "    rm -rf \"$d\"; d=; return 1\n"
    "}\n"
    "take() {\n"
    "    say want\n"
    "    m=$(head -c $total 2>&1 >\"$d/all\")\n"
    "    n=$(($(wc -c <\"$d/all\")))\n"
    "    [ $n = $total ] || no \"hvdagent was not received whole: $n of $total bytes${m:+: $m}\"\n"
    "    m=$(parts 2>&1) && m=$(rm \"$d/all\" \"$d/x\" 2>&1) || no \"hvdagent was not stored: $m\"\n"
    "    whole \"$d\" || no 'hvdagent was damaged on its way: its SHA-256 is another'\n"
    "    m=$(\"$d/hvdagent\" --version 2>&1 </dev/null)\n"
    "    [ \"$m\" = \"$version\" ] || no \"the hvdagent that was sent does not run here: $(echo \"$m\" | "
    "head -n 1)\"\n"
    "}\n"
    "if [ $way = job ]; then\n"
    "    for a in \"${XDG_RUNTIME_DIR-}\" \"${TMPDIR-}\" /tmp; do make \"$a\" \"hvd-sent-$job\" && break; "
    "done\n"
    "    [ -n \"$d\" ] || no \"hvdagent cannot be sent: no room for $total bytes of programs in "
    "\\$XDG_RUNTIME_DIR, "
    "\\$TMPDIR or /tmp\"\n"
    "    take; say have; exec \"$d/hvdagent\" $words\n"
    "fi\n"
    "c=${XDG_CACHE_HOME:-$HOME/.cache}/hvd; t=$c/$build\n"
    "mkdir -p \"$c\" 2>/dev/null; [ -d \"$c\" ] && [ -O \"$c\" ] && [ ! -L \"$c\" ] && chmod 700 \"$c\" ||\n"
    "    no \"hvdagent cannot be sent: $c is no directory of this user\"\n"
    "good() { [ -d \"$t\" ] && [ -O \"$t\" ] && [ ! -L \"$t\" ] && whole \"$t\"; }\n"
    "if ! good; then\n"
    "    find \"$c\" -maxdepth 1 -name '.new.*' -mmin +60 -exec rm -rf {} + 2>/dev/null\n"
    "    make \"$c\" .new || no \"hvdagent cannot be sent: no room for $total bytes of programs in $c\"\n"
    "    take\n"
    /* Another job's script may have put a good one there meanwhile; a damaged one leaves with our directory.
     */
    "    if ! mv -T \"$d\" \"$t\" 2>/dev/null && ! good; then\n"
    "        o=$(mktemp -d \"$c/.new.XXXXXXXX\") && mv -T \"$t\" \"$o/old\" && mv -T \"$d\" \"$t\"\n"
    "        rm -rf \"$o\"\n"
    "    fi\n"
    "    good || no \"hvdagent could not be put into $c\"\n"
    "    rm -rf \"$d\"\n"
    "fi\n"
    "say have; exec \"$t/hvdagent\" $words\n"
    "}\n"
    "hvd_send\n";

struct part {
    const char *name; /* there */
    char path[PATH_MAX];
    size_t offset, size;
    char hash[HEX_SIZE];
};

/* ---- the files ----------------------------------------------------------------------------------------- */

/* Hosts need the first three. They do without the other modules that this installation lacks. */
static const char *const modules[] = {"hvd-engine", "auth.so", "tls.so",
                                      "hvd-pmix",   "gloo.so", "topology.so"};
#define MODULES_NEEDED 3

static int list_parts(struct part *part, size_t *count, const char *program_dir, struct err *e)
{
    static char name[FILES_MAX][32];
    struct err missing = ERR_INIT;
    *count = 1;
    part[0].name = "hvdagent";
    snprintf(part[0].path, sizeof part[0].path, "%s/hvdagent", program_dir);
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        struct part *p = &part[*count];
        if (module_path(modules[i], p->path, sizeof p->path, i < MODULES_NEEDED ? e : &missing) < 0) {
            if (i < MODULES_NEEDED)
                return -1;
            continue;
        }
        snprintf(name[*count], sizeof name[0], "modules/%s", modules[i]);
        p->name = name[(*count)++];
    }
    return 0;
}

static int read_whole(int fd, const char *path, uint8_t *bytes, size_t size, struct err *e)
{
    size_t got = 0;
    while (got < size) {
        ssize_t n = read(fd, bytes + got, size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "cannot read %s", path);
        if (n == 0)
            return err_set(e, ERR_SYSTEM, "%s became shorter while it was read", path);
        got += (size_t)n;
    }
    return 0;
}

static int append_file(struct sent_agent *a, struct part *p, const struct auth_ops *auth, struct err *e)
{
    struct stat st;
    uint8_t digest[AUTH_DIGEST_SIZE];
    int fd = open(p->path, O_RDONLY | O_CLOEXEC), rc = -1;
    if (fd < 0)
        return err_sys(e, errno, "--send-agent: cannot open %s", p->path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 ||
        (uintmax_t)st.st_size > SENT_AGENT_MAX - a->len) {
        err_set(e, ERR_SYSTEM, "--send-agent: %s is no file that can be sent", p->path);
    } else {
        p->offset = a->len;
        p->size = (size_t)st.st_size;
        uint8_t *bytes = realloc(a->bytes, a->len + p->size);
        a->bytes = bytes ? bytes : a->bytes;
        if (!bytes)
            err_set(e, ERR_MEMORY, "no memory for hvdagent");
        else if (read_whole(fd, p->path, bytes + a->len, p->size, e) == 0)
            rc = auth->digest(bytes + a->len, p->size, digest);
        a->len += p->size;
    }
    close(fd);
    for (size_t i = 0; rc == 0 && i < sizeof digest; i++)
        snprintf(p->hash + 2 * i, 3, "%02x", digest[i]);
    if (rc < 0 && !e->code)
        err_set(e, ERR_SYSTEM, "--send-agent: OpenSSL makes no SHA-256");
    return rc;
}

/* ---- the script ---------------------------------------------------------------------------------------- */

static int put_text(struct buf *b, const char *text)
{
    return buf_put(b, text, strlen(text));
}

/* `name='value'` and a line break. */
static int put_value(struct buf *b, const char *name, const char *value)
{
    char word[WORD_MAX] = "";
    if (agent_command_quote(value, word, sizeof word) < 0)
        return -1;
    return put_text(b, name) < 0 || put_text(b, "=") < 0 || put_text(b, word) < 0 || put_text(b, "\n") < 0
               ? -1
               : 0;
}

static int put_parts(struct buf *b, const struct part *part, size_t count)
{
    char line[256], sums[FILES_MAX * (HEX_SIZE + 40)];
    size_t used = 0;
    if (put_text(b, "parts() { :") < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        snprintf(line, sizeof line, " && part %zu %zu %s", part[i].offset, part[i].size, part[i].name);
        if (put_text(b, line) < 0)
            return -1;
        used += (size_t)snprintf(sums + used, sizeof sums - used, "%s%s  %s", i ? "\n" : "", part[i].hash,
                                 part[i].name);
    }
    return put_text(b, "; }\n") < 0 ? -1 : put_value(b, "sums", sums);
}

static void agent_version(char *text, size_t size)
{
    snprintf(text, size, "hvdagent %s (protocol %u)", HVD_VERSION, PROTOCOL_VERSION);
}

/* The places at which hosts look for an installed agent. */
static int put_places(struct buf *b, const struct sent_agent_want *want)
{
    char path[PATH_MAX], version[80], words[80] = "";
    for (size_t i = 0, used = 0; want->arguments[i] && used < sizeof words; i++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s%s", i ? " " : "", want->arguments[i]);
    int n = want->agent_path ? snprintf(path, sizeof path, "%s", want->agent_path)
                             : snprintf(path, sizeof path, "%s/hvdagent", want->program_dir);
    agent_version(version, sizeof version);
    if (n < 0 || (size_t)n >= sizeof path || put_value(b, "agent", path) < 0 ||
        put_value(b, "words", words) < 0)
        return -1;
    return put_text(b, want->agent_path ? "found=\n" : "found=$(command -v hvdagent)\n") < 0
               ? -1
               : put_value(b, "version", version);
}

/* The directory in the cache: it changes with each file. */
static int name_build(const struct part *part, size_t count, const struct auth_ops *auth, char *text,
                      size_t size)
{
    uint8_t all[FILES_MAX * HEX_SIZE], digest[AUTH_DIGEST_SIZE];
    for (size_t i = 0; i < count; i++)
        memcpy(all + i * HEX_SIZE, part[i].hash, HEX_SIZE);
    if (auth->digest(all, count * HEX_SIZE, digest) < 0)
        return -1;
    int n = snprintf(text, size, "%s-", HVD_VERSION);
    for (size_t i = 0; i < 8; i++)
        n += snprintf(text + n, size - (size_t)n, "%02x", digest[i]);
    return 0;
}

static int write_script(struct sent_agent *a, const struct sent_agent_want *want, const struct part *part,
                        size_t count, const struct auth_ops *auth)
{
    struct utsname us;
    struct buf b;
    char platform[160], number[24], build[80];
    buf_init(&b, SCRIPT_MAX);
    if (uname(&us) < 0 || name_build(part, count, auth, build, sizeof build) < 0)
        return -1;
    snprintf(platform, sizeof platform, "%s/%s", us.sysname, us.machine);
    snprintf(number, sizeof number, "%zu", a->len);
    int rc = put_text(&b, "hvd_send() {\n") < 0 || put_places(&b, want) < 0 ||
                     put_value(&b, "job", want->job) < 0 || put_value(&b, "platform", platform) < 0 ||
                     put_value(&b, "total", number) < 0 ||
                     put_value(&b, "way", want->way == SEND_AGENT_CACHE ? "cache" : "job") < 0 ||
                     put_value(&b, "build", build) < 0 || put_parts(&b, part, count) < 0 ||
                     put_text(&b, body) < 0
                 ? -1
                 : 0;
    if (rc == 0) {
        a->script_len = b.len;
        a->script = malloc(b.len);
        if (a->script)
            memcpy(a->script, buf_data(&b), b.len);
    }
    buf_free(&b);
    return a->script ? 0 : -1;
}

int sent_agent_load(struct sent_agent *a, const struct sent_agent_want *want, struct err *e)
{
    struct part *part = calloc(FILES_MAX, sizeof *part);
    const struct auth_ops *auth = auth_open(e);
    size_t count = 0;
    char line[64];
    int rc = part ? 0 : err_set(e, ERR_MEMORY, "no memory for hvdagent");
    *a = (struct sent_agent){0};
    if (!auth || rc < 0 || list_parts(part, &count, want->program_dir, e) < 0)
        rc = -1;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = append_file(a, &part[i], auth, e);
    if (rc == 0 && write_script(a, want, part, count, auth) < 0)
        rc = err_set(e, ERR_USAGE, "the path of hvdagent is too long");
    free(part);
    snprintf(line, sizeof line, "eval \"$(head -c %zu)\"", a->script_len);
    if (rc == 0 && agent_command_wrap(line, a->command, sizeof a->command) < 0)
        rc = err_set(e, ERR_USAGE, "the path of hvdagent is too long");
    snprintf(a->have, sizeof a->have, "hvd-send %s have", want->job);
    snprintf(a->want, sizeof a->want, "hvd-send %s want", want->job);
    if (rc < 0)
        sent_agent_free(a);
    return rc;
}

void sent_agent_free(struct sent_agent *a)
{
    free(a->script);
    free(a->bytes);
    *a = (struct sent_agent){0};
}

int sent_agent_sweep_command(const struct sent_agent_want *want, bool now, char *out, size_t size,
                             struct err *e)
{
    char path[PATH_MAX], word[WORD_MAX] = "", script[WORD_MAX + 1024];
    int n = want->agent_path ? snprintf(path, sizeof path, "%s", want->agent_path)
                             : snprintf(path, sizeof path, "%s/hvdagent", want->program_dir);
    if (n >= 0 && (size_t)n < sizeof path && agent_command_quote(path, word, sizeof word) == 0) {
        n = snprintf(
            script, sizeof script,
            "for d in \"${XDG_RUNTIME_DIR-}\"/hvd-sent-%s.* "
            "\"${TMPDIR-}\"/hvd-sent-%s.* /tmp/hvd-sent-%s.* "
            "\"${XDG_CACHE_HOME:-$HOME/.cache}\"/hvd/%s-*; do [ -O \"$d\" ] && [ ! -L \"$d\" ] || continue; "
            "a=$d/hvdagent; [ -x \"$a\" ] && exec \"$a\" sweep %s%s; "
            /* the rest of it: a session was killed while it removed the directory */
            "case $d in */hvd-sent-*) rm -rf \"$d\" ;; esac; done; "
            "for a in %s%s; do [ -f \"$a\" ] && [ -x \"$a\" ] && exec \"$a\" sweep %s%s; done; exit 0",
            want->job, want->job, want->job, HVD_VERSION, now ? "--now " : "", want->job, word,
            want->agent_path ? "" : " \"$(command -v hvdagent)\"", now ? "--now " : "", want->job);
        if (n >= 0 && (size_t)n < sizeof script && agent_command_wrap(script, out, size) == 0)
            return 0;
    }
    return err_set(e, ERR_USAGE, "the path of hvdagent is too long");
}

/* ---- the conversation ---------------------------------------------------------------------------------- */

void host_sending_begin(struct host_sending *s, const struct sent_agent *a)
{
    *s = (struct host_sending){.bytes = (const uint8_t *)a->script, .left = a->script_len};
}

void host_sending_written(struct host_sending *s, size_t taken)
{
    s->bytes += taken;
    s->left -= taken;
}

/* A line has ended. Lines that a shell prints at the login are no answers. */
static enum sending_answer read_answer(struct host_sending *s, const struct sent_agent *a)
{
    size_t len = s->filled;
    s->filled = 0;
    if (len == strlen(a->have) && memcmp(s->line, a->have, len) == 0)
        return SENDING_HAVE;
    if (s->files || s->left > 0 || len != strlen(a->want) || memcmp(s->line, a->want, len) != 0)
        return SENDING_NONE;
    s->files = true;
    s->bytes = a->bytes;
    s->left = a->len;
    return SENDING_WANT;
}

enum sending_answer host_sending_receive(struct host_sending *s, const struct sent_agent *a,
                                         const uint8_t *bytes, size_t len, size_t *used)
{
    for (*used = 0; *used < len;) {
        char c = (char)bytes[(*used)++];
        if (c == '\n') {
            enum sending_answer said = read_answer(s, a);
            if (said != SENDING_NONE)
                return said;
        } else if (s->filled < sizeof s->line) {
            s->line[s->filled++] = c;
        }
    }
    return SENDING_NONE;
}
