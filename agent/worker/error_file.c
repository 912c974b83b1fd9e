#include "agent/worker/error_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *error_file_path(const char *directory, uint32_t rank, char path[ERROR_FILE_MAX])
{
    snprintf(path, ERROR_FILE_MAX, "%s/error-%u.json", directory ? directory : "", rank);
    return path;
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

struct cursor {
    const char *at, *end;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && strchr(" \t\r\n", *c->at))
        c->at++;
}

/* The character that a backslash and this one stand for; a question mark if ASCII lacks the character. */
static char take_escape(struct cursor *c)
{
    char letter = *c->at++, digits[5] = "";
    if (letter == 'n' || letter == 'r')
        return '\n';
    if (letter == 't')
        return ' ';
    if (letter != 'u')
        return letter;
    for (int i = 0; i < 4 && c->at < c->end; i++)
        digits[i] = *c->at++;
    unsigned long code = strtoul(digits, NULL, 16);
    return code >= ' ' && code < 0x7f ? (char)code : '?';
}

/* Behind a quotation mark: the string's first line, and *c behind its end. false: it has no end. */
static bool take_string(struct cursor *c, char text[ERROR_TEXT_MAX])
{
    size_t used = 0;
    bool whole = false;
    while (c->at < c->end && *c->at != '"') {
        char letter = *c->at++;
        if (letter == '\\' && c->at < c->end)
            letter = take_escape(c);
        whole = whole || letter == '\n';
        if (!whole && used + 1 < ERROR_TEXT_MAX)
            text[used++] = letter;
    }
    text[used] = '\0';
    return c->at++ < c->end;
}

int error_file_message(const char *json, size_t size, char text[ERROR_TEXT_MAX])
{
    struct cursor c = {json, json + size};
    bool is_next = false; /* the value of "message" */
    while (c.at < c.end) {
        if (*c.at != '"') {
            is_next = is_next && *c.at == '{';
            c.at++;
            skip_blanks(&c);
            continue;
        }
        c.at++;
        if (!take_string(&c, text))
            return -1;
        skip_blanks(&c);
        bool is_name = c.at < c.end && *c.at == ':';
        if (is_next && !is_name)
            return *text ? 0 : -1;
        is_next = is_name && strcmp(text, "message") == 0;
        if (is_name) {
            c.at++;
            skip_blanks(&c);
        }
    }
    return -1;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static ssize_t read_file(int fd, char *content)
{
    size_t have = 0;
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return -1;
    while (have < ERROR_BYTES_MAX) {
        ssize_t n = read(fd, content + have, ERROR_BYTES_MAX - have);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            return -1;
        have += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)have;
}

int error_file_read(const char *path, char text[ERROR_TEXT_MAX])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char *content = fd >= 0 ? malloc(ERROR_BYTES_MAX) : NULL;
    ssize_t size = content ? read_file(fd, content) : -1;
    int rc = size > 0 ? error_file_message(content, (size_t)size, text) : -1;
    free(content);
    if (fd >= 0)
        close(fd);
    return rc;
}
