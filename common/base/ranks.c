#include "common/base/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t ranks_find(const uint32_t *list, uint32_t count, uint32_t rank)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (list[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && list[low] == rank ? low : UINT32_MAX;
}

static const char *list_text(const uint32_t *list, uint32_t count, const char *between, const char *to,
                             char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t i = 0, last; i < count; i = last + 1) {
        for (last = i; last + 1 < count && list[last + 1] == list[last] + 1;)
            last++;
        char part[40];
        if (last > i)
            snprintf(part, sizeof part, "%s%u%s%u", i ? between : "", list[i], to, list[last]);
        else
            snprintf(part, sizeof part, "%s%u", i ? between : "", list[i]);
        size_t length = strlen(part);
        if (n + length + sizeof " ..." > size) {
            snprintf(text + n, size - n, " ...");
            break;
        }
        memcpy(text + n, part, length + 1);
        n += length;
    }
    return text;
}

const char *ranks_text(const uint32_t *list, uint32_t count, char *text, size_t size)
{
    return list_text(list, count, ", ", " to ", text, size);
}

const char *ranks_text_short(const uint32_t *list, uint32_t count, char *text, size_t size)
{
    return list_text(list, count, ",", "-", text, size);
}

/* A number at *at, which moves behind it. */
static bool read_number(const char **at, uint32_t *value)
{
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    char *end;
    unsigned long n = strtoul(*at, &end, 10);
    *at = end;
    *value = (uint32_t)n;
    return errno == 0 && n < UINT32_MAX;
}

/* "3" or "2-5" at *at, which moves behind it and the comma that follows. */
static bool read_range(const char **at, uint32_t *first, uint32_t *last)
{
    if (!read_number(at, first))
        return false;
    *last = *first;
    if (**at == '-' && (++*at, !read_number(at, last)))
        return false;
    if (**at == ',' && (*at)[1])
        ++*at;
    else if (**at)
        return false;
    return *first <= *last;
}

int ranks_check(const char *list, uint32_t *highest, struct err *e)
{
    *highest = 0;
    uint32_t first, last;
    for (const char *at = list; at == list || *at;) {
        const char *begin = at;
        if (!read_range(&at, &first, &last))
            return err_set(e, ERR_USAGE, "'%s' is no list of ranks like 0,2-5 (at '%s')", list, begin);
        *highest = last > *highest ? last : *highest;
    }
    return 0;
}

bool ranks_listed(const char *list, uint32_t rank)
{
    uint32_t first, last;
    for (const char *at = list; *at && read_range(&at, &first, &last);)
        if (rank >= first && rank <= last)
            return true;
    return false;
}
