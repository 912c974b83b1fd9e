#include "common/page/page.h"

#include <string.h>
#include <strings.h>

/* The file, as it is, between two symbols. */
__asm__(".pushsection .rodata\n"
        ".globl page_template\n"
        ".hidden page_template\n"
        "page_template: .incbin \"common/page/page.html\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char page_template[];

#define MARK "@REPORT@" /* the place of the JSON */

bool page_is_wanted(const char *path)
{
    const char *end = strrchr(path, '.');
    return end && (strcasecmp(end, ".html") == 0 || strcasecmp(end, ".htm") == 0);
}

/* Within a script element only `<` could end it, or begin a comment. In JSON it stands in strings alone. */
static void write_data(FILE *out, const char *json, size_t size)
{
    for (size_t i = 0, n; i < size; i += n) {
        const char *less = memchr(json + i, '<', size - i);
        n = less ? (size_t)(less - json) - i : size - i;
        fwrite(json + i, 1, n, out);
        if (!less)
            return;
        fputs("\\u003c", out);
        n++;
    }
}

void page_write(FILE *out, const char *json, size_t size)
{
    const char *mark = strstr(page_template, MARK);
    if (!mark)
        return;
    fwrite(page_template, 1, (size_t)(mark - page_template), out);
    write_data(out, json, size);
    fputs(mark + strlen(MARK), out);
}
