/* Nothing here breaks a rule: strcpy(a, b) and #include "agent/x.h" stand in a comment. */
#include "common/text.h"

#include <stdlib.h>
#include <uv.h>

int main(void)
{
    const char *text = "system(\"x\"); exit(1)";
    struct table {
        int (*system)(void);
    } table = {0};
    if (table.system && table.system())
        exit(text[0] == '"');
    return my_strcpy() + text_exit();
}
