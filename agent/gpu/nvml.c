#include "agent/gpu/nvml.h"

#include <dlfcn.h>
#include <stddef.h>

static const struct {
    const char *symbol;
    bool required;
    size_t at;
} functions[] = {
#define NVML_ROW(name, symbol, required, arguments) {symbol, required, offsetof(struct nvml, name)},
    NVML_FUNCTIONS(NVML_ROW)
#undef NVML_ROW
        {"nvmlErrorString", true, offsetof(struct nvml, error_text)},
};

bool nvml_is_there(void)
{
    void *library = dlopen(NVML_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    if (library)
        dlclose(library);
    return library != NULL;
}

const char *nvml_open(struct nvml *n)
{
    *n = (struct nvml){.library = dlopen(NVML_LIBRARY, RTLD_LAZY | RTLD_LOCAL)};
    for (size_t i = 0; n->library && i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(n->library, functions[i].symbol);
        *(void **)(void *)((char *)n + functions[i].at) = symbol;
        if (symbol || !functions[i].required)
            continue;
        nvml_close(n);
        return functions[i].symbol;
    }
    return NULL;
}

void nvml_close(struct nvml *n)
{
    dlclose(n->library);
    n->library = NULL;
}
