/* pmix_job_key KEY: prints what the server says of the whole job under that key, if it is a text or a bool.
 */
#include <pmix.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    pmix_proc_t self, job;
    pmix_value_t *value;
    if (argc != 2 || PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS)
        return 2;
    PMIX_LOAD_PROCID(&job, self.nspace, PMIX_RANK_WILDCARD);
    pmix_status_t rc = PMIx_Get(&job, argv[1], NULL, 0, &value);
    if (rc == PMIX_SUCCESS && value->type == PMIX_STRING)
        puts(value->data.string);
    else if (rc == PMIX_SUCCESS && value->type == PMIX_BOOL)
        puts(value->data.flag ? "true" : "false");
    else
        printf("nothing: %s\n", PMIx_Error_string(rc));
    return PMIx_Finalize(NULL, 0) == PMIX_SUCCESS ? 0 : 1;
}
