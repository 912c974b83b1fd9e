#include "launcher/cli/horovod_flags.h"

#include <stdio.h>

#include "common/base/log.h"
#include "launcher/cli/engine_tuning.h"

/* --verbose is about hvdrun alone. */
static int set_level(struct environment *env, const struct config *c, struct err *e)
{
    return config_given(c, &c->log_level)
               ? environment_set(env, "HOROVOD_LOG_LEVEL", log_level_name(c->log_level), e)
               : 0;
}

int horovod_flags_export(const struct config *c, struct environment *env, struct err *e)
{
    if (config_export_number(c, env, "HOROVOD_NUM_NCCL_STREAMS", &c->num_nccl_streams, e) < 0 ||
        config_export_number(c, env, "HOROVOD_GLOO_TIMEOUT_SECONDS", &c->gloo_timeout_seconds, e) < 0)
        return -1;
    if (c->thread_affinity && environment_set(env, "HOROVOD_THREAD_AFFINITY", c->thread_affinity, e) < 0)
        return -1;
    if (c->tcp && environment_set(env, "NCCL_IB_DISABLE", "1", e) < 0)
        return -1;
    const struct {
        const char *name;
        const bool *on, *off;
    } switches[] = {
        {"HOROVOD_HIERARCHICAL_ALLGATHER", &c->hierarchical_allgather, &c->no_hierarchical_allgather},
        {"HOROVOD_TORUS_ALLREDUCE", &c->torus_allreduce, &c->no_torus_allreduce},
        {"HOROVOD_MPI_THREADS_DISABLE", &c->mpi_threads_disable, &c->no_mpi_threads_disable},
        {"HOROVOD_LOG_HIDE_TIME", &c->log_without_timestamp, &c->log_with_timestamp},
    };
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (config_export_switch(c, env, switches[i].name, switches[i].on, switches[i].off, e) < 0)
            return -1;
    return set_level(env, c, e);
}

void horovod_flags_say(const struct config *c)
{
    const struct {
        bool given;
        const char *why;
    } needless[] = {
        {c->mpi, "--mpi: not needed, programs of MPI, Gloo and libhvd are all started in the same way"},
        {c->gloo, "--gloo: not needed, programs of MPI, Gloo and libhvd are all started in the same way"},
        {c->jsrun, "--jsrun: not needed, inside an LSF job its hosts are taken without being asked for"},
        {c->disable_cache, "--disable-cache: not needed, no check of a host is kept for later"},
        {c->tcp,
         "--tcp: NCCL gets NCCL_IB_DISABLE=1; hvdrun's own engine sends by TCP anyway, and Open MPI is told "
         "with -x OMPI_MCA_pml=ob1 -x OMPI_MCA_btl=tcp,self"},
        {c->mpi_args, "--mpi-args: not used, no mpirun is started that could get them; see hvdrun-flags(7)"},
        {c->binding_args,
         "--binding-args: not used, no mpirun is started that could get them; see hvdrun-flags(7)"},
    };
    for (size_t i = 0; i < sizeof needless / sizeof *needless; i++)
        if (needless[i].given && log_level() <= LOG_WARNING)
            log_say("hvdrun: %s\n", needless[i].why);
    if (c->file.ignored[0])
        log_warning("%s: ignored, as by horovodrun: %s", c->config_file, c->file.ignored);
}
