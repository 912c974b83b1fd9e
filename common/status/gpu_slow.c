#include "common/status/gpu_slow.h"

#include <stdio.h>
#include <string.h>

static void add_word(char text[GPU_SLOW_TEXT], const char *word)
{
    size_t used = strlen(text);
    snprintf(text + used, GPU_SLOW_TEXT - used, "%s%s", used ? ", " : "", word);
}

const char *gpu_slow_text(uint64_t reasons, char text[GPU_SLOW_TEXT])
{
    const uint64_t explained = GPU_SLOW_HEAT | GPU_SLOW_POWER_BRAKE; /* the hardware's own reasons */
    text[0] = '\0';
    if (reasons & GPU_SLOW_BY_HEAT)
        add_word(text, "heat");
    if (reasons & GPU_SLOW_POWER_BRAKE)
        add_word(text, "power brake");
    if (reasons & GPU_SLOW_POWER_CAP)
        add_word(text, "power cap");
    if (reasons & GPU_SLOW_HARDWARE && !(reasons & explained))
        add_word(text, "hardware");
    return text;
}
