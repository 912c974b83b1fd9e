#include "agent/worker/cpus.h"

#include <stdio.h>
#include <string.h>

#define WORDS (CPUS_MAX / 64)

void cpus_join(struct cpus *to, const struct cpus *from)
{
    for (size_t i = 0; i < WORDS; i++)
        to->word[i] |= from->word[i];
}

bool cpus_keep(struct cpus *to, const struct cpus *from)
{
    uint64_t left = 0;
    for (size_t i = 0; i < WORDS; i++)
        left |= to->word[i] &= from->word[i];
    return left != 0;
}

bool cpus_meet(const struct cpus *a, const struct cpus *b)
{
    for (size_t i = 0; i < WORDS; i++)
        if (a->word[i] & b->word[i])
            return true;
    return false;
}

bool cpus_within(const struct cpus *a, const struct cpus *b)
{
    for (size_t i = 0; i < WORDS; i++)
        if (a->word[i] & ~b->word[i])
            return false;
    return true;
}

size_t cpus_count(const struct cpus *set)
{
    size_t count = 0;
    for (size_t i = 0; i < WORDS; i++)
        count += (size_t)__builtin_popcountll(set->word[i]);
    return count;
}

const char *cpus_text(const struct cpus *set, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++) {
        char part[32];
        uint32_t last = cpu;
        if (!cpus_has(set, cpu))
            continue;
        while (cpus_has(set, last + 1))
            last++;
        snprintf(part, sizeof part, last > cpu ? "%s%u-%u" : "%s%u", used ? "," : "", cpu, last);
        size_t length = strlen(part);
        if (used + length + sizeof ",..." > size) {
            snprintf(text + used, size - used, ",...");
            break;
        }
        memcpy(text + used, part, length + 1);
        used += length;
        cpu = last;
    }
    return text;
}
