#include "common/ranks.h"

#include <stdio.h>
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
        char part[40];
        for (last = i; last + 1 < count && list[last + 1] == list[last] + 1;)
            last++;
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
