/* pmix_says WAY: what a rank has to say to the user, by PMIx_Log and not by its own stderr. WAY is stderr,
 * stdout, long (20,000 letters, and a line), many (1000 lines), elsewhere (syslog), closed (stderr, which
 * this process has closed) or garbage (what OpenMPI 4 would not send). */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pmix_status_t say(const char *key, const void *value, pmix_data_type_t type)
{
    pmix_info_t info;
    PMIX_INFO_CONSTRUCT(&info);
    PMIX_INFO_LOAD(&info, key, value, type);
    pmix_status_t rc = PMIx_Log(&info, 1, NULL, 0);
    PMIX_INFO_DESTRUCT(&info);
    return rc;
}

static pmix_status_t say_much(void)
{
    pmix_status_t rc = PMIX_SUCCESS;
    char line[64];
    for (int i = 0; i < 1000 && rc == PMIX_SUCCESS; i++) {
        snprintf(line, sizeof line, "word %d of many\n", i);
        rc = say(PMIX_LOG_STDERR, line, PMIX_STRING);
    }
    return rc;
}

static pmix_status_t say_long(void)
{
    static char text[20100];
    memset(text, 'x', 20000);
    snprintf(text + 20000, 100, "\nthe last line\n");
    return say(PMIX_LOG_STDERR, text, PMIX_STRING);
}

int main(int argc, char **argv)
{
    pmix_byte_object_t garbage = {(char[]){0, 0, 0, 1, 127, 0, 0, 0}, 8};
    const char *way = argc > 1 ? argv[1] : "";
    pmix_status_t rc = PMIX_ERR_BAD_PARAM;
    pmix_proc_t me;
    char text[64];
    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
        return 2;
    snprintf(text, sizeof text, "rank %u says it by %s\nand ends", me.rank, way);
    if (strcmp(way, "closed") == 0)
        close(STDERR_FILENO);
    if (strcmp(way, "stderr") == 0 || strcmp(way, "closed") == 0)
        rc = say(PMIX_LOG_STDERR, text, PMIX_STRING);
    else if (strcmp(way, "stdout") == 0)
        rc = say(PMIX_LOG_STDOUT, text, PMIX_STRING);
    else if (strcmp(way, "elsewhere") == 0)
        rc = say(PMIX_LOG_SYSLOG, text, PMIX_STRING);
    else if (strcmp(way, "garbage") == 0)
        rc = say(PMIX_LOG_MSG, &garbage, PMIX_BYTE_OBJECT);
    else if (strcmp(way, "many") == 0)
        rc = say_much();
    else if (strcmp(way, "long") == 0)
        rc = say_long();
    printf("%u: %s\n", me.rank, PMIx_Error_string(rc));
    fflush(stdout);
    PMIx_Finalize(NULL, 0);
    return me.rank == 1 ? 3 : 0;
}
