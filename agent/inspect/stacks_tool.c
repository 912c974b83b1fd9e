/*   eu-stack -m      TID 12:                               #1  0x00007f8 sleep - /usr/lib/libc.so.6
 *   gdb              Thread 1 (... (LWP 12) "name"):       #1  0x00007f8 in sleep (seconds=1) at sleep.c:55
 *                                                          #2  0x00007f8 in ?? () from /usr/lib/libx.so
 *   py-spy dump      Thread 12 (idle): "MainThread"            load_batch (train.py:55)
 *                                                              sleep (libc.so.6) */
#include "agent/inspect/stacks.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX  64 /* different stacks */
#define FRAMES_MAX   64
#define INNER        16 /* of a long stack are shown, */
#define OUTER        4  /* and these at its end */
#define FUNCTION_MAX 80

struct stack {
    char *text;
    unsigned threads;
    bool main;
};

struct thread_stacks {
    struct stack item[THREADS_MAX];
    size_t count;
};

struct thread {
    char frame[FRAMES_MAX][FUNCTION_MAX];
    size_t frames, lost; /* lost: behind the last that is kept */
    bool main;
};

/* The last part of a path after `mark`, or NULL. */
static const char *module_of(const char *line, const char *mark)
{
    const char *found = strstr(line, mark);
    const char *slash = found ? strrchr(found, '/') : NULL;
    return slash ? slash + 1 : NULL;
}

/* One "#N ..." line; `line` ends where it ends. */
static void add_frame(struct thread *t, char *line)
{
    const char *p = line + 1 + strspn(line + 1, "0123456789");
    const char *module = module_of(line, " from ");
    p += strspn(p, " ");
    if (strncmp(p, "0x", 2) == 0) {
        p += strcspn(p, " ");
        p += strspn(p, " ");
        if (strncmp(p, "in ", 3) == 0)
            p += 3;
    }
    if (!module)
        module = module_of(line, "- /");
    size_t len = strncmp(p, "- ", 2) == 0 ? 0 : strcspn(p, "(@");
    const char *dash = strstr(p, " - ");
    if (dash && (size_t)(dash - p) < len)
        len = (size_t)(dash - p);
    while (len > 0 && p[len - 1] == ' ')
        len--;
    if (t->frames == FRAMES_MAX) {
        /* The outermost are worth more than those before them. */
        memmove(t->frame[INNER], t->frame[INNER + 1], (FRAMES_MAX - INNER - 1) * sizeof t->frame[0]);
        t->frames--;
        t->lost++;
    }
    char *out = t->frame[t->frames++];
    if (len > 0 && strncmp(p, "??", 2) != 0)
        snprintf(out, FUNCTION_MAX, "%.*s", (int)len, p);
    else
        snprintf(out, FUNCTION_MAX, "?%s%.60s", module ? " in " : "", module ? module : "");
}

/* "    load (train.py:55)" of py-spy: with file and line, which say more than Python's functions alone. */
static void add_python_frame(struct thread *t, char *line)
{
    char *open = strrchr(line, '('), *close = strrchr(line, ')');
    if (strncmp(line, "    ", 4) != 0 || !open || !close || open < line + 5 || close < open)
        return;
    open[-1] = *close = '\0';
    if (t->frames == FRAMES_MAX)
        return;
    const char *function = line[4] == '0' && line[5] == 'x' ? "?" : line + 4;
    snprintf(t->frame[t->frames++], FUNCTION_MAX, "%.50s %.28s", function, open + 1);
}

static void append_text(char *out, size_t size, const char *text)
{
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s", text);
}

/* Without what comes before main, which is the same everywhere. */
static void end_thread(struct thread_stacks *s, struct thread *t)
{
    char line[(INNER + OUTER + 2) * (FUNCTION_MAX + 3)] = "", gap[48];
    size_t n = t->frames;
    for (size_t i = 0; i < n; i++)
        if (strcmp(t->frame[i], "main") == 0 || strcmp(t->frame[i], "start_thread") == 0 ||
            strncmp(t->frame[i], "<module> ", 9) == 0)
            n = i + 1;
    for (size_t i = 0; i < n; i++) {
        bool skip = n > INNER + OUTER && i >= INNER && i < n - OUTER;
        if (skip && i > INNER)
            continue;
        snprintf(gap, sizeof gap, "(%zu more)", n - INNER - OUTER + t->lost);
        append_text(line, sizeof line, i ? " < " : "");
        append_text(line, sizeof line, skip ? gap : t->frame[i]);
    }
    struct stack *same = NULL;
    for (size_t i = 0; n > 0 && i < s->count && !same; i++)
        same = strcmp(s->item[i].text, line) == 0 ? &s->item[i] : NULL;
    if (n > 0 && !same && s->count < THREADS_MAX) {
        same = &s->item[s->count++];
        *same = (struct stack){strdup(line), 0, false};
        if (!same->text)
            s->count--, same = NULL;
    }
    if (same) {
        same->threads++;
        same->main = same->main || t->main;
    }
    t->frames = t->lost = 0;
    t->main = false;
}

static bool begins_thread(const char *line, pid_t pid, bool *main)
{
    const char *number = NULL;
    if (strncmp(line, "TID ", 4) == 0)
        number = line + 4;
    else if (strncmp(line, "Thread ", 7) == 0 && strchr(line, '('))
        number = (number = strstr(line, "(LWP ")) ? number + 5 : line + 7; /* of py-spy */
    if (number)
        *main = strtol(number, NULL, 10) == pid;
    return number;
}

static void put_stacks(const struct thread_stacks *s, char *out, size_t size)
{
    char head[48];
    size_t used = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < s->count; i++) {
            const struct stack *k = &s->item[i];
            if (k->main != (pass == 0))
                continue;
            head[0] = '\0';
            if (k->threads > 1)
                snprintf(head, sizeof head, "%u threads: ", k->threads);
            else if (!k->main)
                snprintf(head, sizeof head, "a thread: ");
            size_t need = strlen(head) + strlen(k->text) + (used > 0);
            if (used + need >= size)
                continue;
            used += (size_t)snprintf(out + used, size - used, "%s%s%s", used ? "\n" : "", head, k->text);
        }
    }
}

bool stacks_parse(const char *text, pid_t pid, char *out, size_t size)
{
    struct thread_stacks *s = calloc(1, sizeof *s);
    struct thread *t = calloc(1, sizeof *t);
    char line[1024];
    bool main;
    out[0] = '\0';
    while (s && t && *text) {
        size_t len = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)len, text);
        text += len + (text[len] == '\n');
        if (begins_thread(line, pid, &main)) {
            end_thread(s, t);
            t->main = main;
        } else if (line[0] == '#' && isdigit((unsigned char)line[1])) {
            add_frame(t, line);
        } else {
            add_python_frame(t, line);
        }
    }
    if (s && t) {
        end_thread(s, t);
        put_stacks(s, out, size);
    }
    for (size_t i = 0; s && i < s->count; i++)
        free(s->item[i].text);
    free(s);
    free(t);
    return out[0] != '\0';
}
