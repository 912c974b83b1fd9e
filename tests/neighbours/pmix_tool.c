/* pmix_tool: attaches to the server of its own job as a tool, not as the rank that it is. */
#include <pmix.h>
#include <pmix_tool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    const char *of_server = getenv("PMIX_SERVER_URI41");
    char *uri = of_server ? strdup(of_server) : NULL;
    pmix_info_t info;
    pmix_proc_t me;
    if (!uri)
        return 1;
    unsetenv("PMIX_NAMESPACE");
    unsetenv("PMIX_RANK");
    PMIX_INFO_LOAD(&info, PMIX_SERVER_URI, uri, PMIX_STRING);
    puts(PMIx_tool_init(&me, &info, 1) == PMIX_SUCCESS ? "attached" : "refused");
    free(uri);
    return 0;
}
