/* pmix_keys KEY...: the values of this rank's keys, a line each; "job:KEY" is one of the job. */
#include <pmix.h>
#include <stdio.h>
#include <string.h>

static pmix_proc_t me;

static void show_value(const char *name, const pmix_value_t *v)
{
    if (v->type == PMIX_STRING)
        printf("%u %s=%s\n", me.rank, name, v->data.string);
    else if (v->type == PMIX_UINT16)
        printf("%u %s=%u\n", me.rank, name, v->data.uint16);
    else if (v->type == PMIX_PROC_RANK)
        printf("%u %s=%u\n", me.rank, name, v->data.rank);
    else
        printf("%u %s=%u\n", me.rank, name, v->data.uint32);
}

static void show_key(const char *name)
{
    bool of_job = strncmp(name, "job:", 4) == 0;
    pmix_value_t *v = NULL;
    pmix_proc_t p;
    PMIX_LOAD_PROCID(&p, me.nspace, of_job ? PMIX_RANK_WILDCARD : me.rank);
    pmix_status_t rc = PMIx_Get(&p, of_job ? name + 4 : name, NULL, 0, &v);
    if (rc == PMIX_SUCCESS)
        show_value(name, v);
    else
        printf("%u %s: %s\n", me.rank, name, PMIx_Error_string(rc));
    if (v)
        PMIX_VALUE_RELEASE(v);
}

int main(int argc, char **argv)
{
    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
        return 1;
    for (int i = 1; i < argc; i++)
        show_key(argv[i]);
    return PMIx_Finalize(NULL, 0) == PMIX_SUCCESS ? 0 : 1;
}
