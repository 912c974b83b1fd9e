#include "common/ranks.h"

#include <stdio.h>

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

const char *ranks_text(const uint32_t *list, uint32_t count, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t i = 0, last; i < count; i = last + 1) {
        char part[40];
        for (last = i; last + 1 < count && list[last + 1] == list[last] + 1;)
            last++;
        if (last > i)
            snprintf(part, sizeof part, "%s%u to %u", i ? ", " : "", list[i], list[last]);
        else
            snprintf(part, sizeof part, "%s%u", i ? ", " : "", list[i]);
        int length = snprintf(text + n, size - n, "%s", part);
        if (n + (size_t)length + sizeof " ..." > size && last + 1 < count) {
            snprintf(text + n, size - n, " ...");
            break;
        }
        n += (size_t)length;
    }
    return text;
}
