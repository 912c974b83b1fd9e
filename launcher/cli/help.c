/* A topic is a row of the table below. Its page lies where `make install` puts it, or in the source tree that
 * this program was built in, so that an installation always shows its own; a man(1) that only finds other
 * pages is not asked. The short texts are for machines without manual pages, such as images of containers. */

#include <limits.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/options/options_table.h"
#include "common/process/module.h"
#include "launcher/cli/config.h"

static void print_options(FILE *out)
{
    const char *group = "";
    fputs("hvdrun help options GROUP shows one of these groups; some letters of its name\n"
          "are enough. hvdrun --help shows all groups:\n\n",
          out);
    for (size_t i = 0; i < config_program.count; i++) {
        if (strcmp(group, config_program.spec[i].group) != 0)
            fprintf(out, "  %s\n", config_program.spec[i].group);
        group = config_program.spec[i].group;
    }
}

/* Each option's first variable is HVDRUN_ and its name; the others stand in --help. */
static void print_variables(FILE *out)
{
    fputs("\nVariables that set options:\n\n", out);
    for (size_t i = 0; i < config_program.count; i++) {
        struct option_name name = {0};
        const struct option_spec *spec = &config_program.spec[i];
        while (option_next_name(spec->variable, &name))
            fprintf(out, "  %.*s  (%s)\n", (int)name.len, name.text, spec->flags);
    }
}

static const struct topic {
    const char *name;
    const char *about;
    const char *page; /* "hvdrun.1", or NULL */
    const char *text; /* short; NULL: `print` has it all */
    void (*print)(FILE *out);
} topics[] = {
    {"hvdrun", "everything that hvdrun does", "hvdrun.1",
     "hvdrun [options] command [argument ...] starts the command once for every rank\n"
     "of a job, here or on many hosts. It passes on the output of the ranks, and\n"
     "returns when the last process of the job is gone.\n"
     "\n"
     "  hvdrun -np 4 ./train                          four ranks here\n"
     "  hvdrun -np 8 -H node1:4,node2:4 ./train       two hosts, over SSH\n"
     "  hvdrun --hostfile hosts.txt ./train           a rank for every slot\n"
     "  hvdrun ./train                                in a batch script: its hosts\n"
     "\n"
     "hvdrun --help lists the options.\n",
     NULL},
    {"options", "the options, by group: hvdrun help options [GROUP]", NULL, NULL, print_options},
    {"environment", "variables that hvdrun reads, and those that workers get", "hvd-environment.7",
     "Workers get hvdrun's environment, except the rank of another launcher and values\n"
     "that are valid on one host only. -x brings a variable back, --unset removes one.\n"
     "HVD_RANK, HVD_SIZE, HVD_LOCAL_RANK, HVD_LOCAL_SIZE, HVD_CROSS_RANK and\n"
     "HVD_CROSS_SIZE give a worker its place in the job. The variables of horovodrun,\n"
     "torchrun, mpirun and others give it too (hvdrun help rendezvous). The directory\n"
     "HVD_PRELOAD_DIR has the files of --preload.\n",
     print_variables},
    {"exit-codes", "the meanings of hvdrun's exit status", NULL,
     "    0  every rank ended with status 0\n"
     "    2  the command line, a variable or a file of options or hosts is wrong;\n"
     "       nothing was started\n"
     "  124  the job was ended by --timeout\n"
     "  125  a host could not be used or was lost, or hvdrun itself failed\n"
     "  126  the command cannot be executed on a host\n"
     "  127  the command was not found on a host\n"
     "other  the status of the rank that failed first; 128 plus the number of the\n"
     "       signal that killed it, or of the signal to hvdrun that ended the job\n",
     NULL},
    {"hostfile", "how hosts and slots are written", NULL,
     "A hostfile names one host on a line:\n"
     "\n"
     "  # the fast ones\n"
     "  node1 slots=4\n"
     "  node2 slots=4 max_slots=8\n"
     "  me@node3:2\n"
     "  [fd00::4]:2\n"
     "  node5\n"
     "\n"
     "A host without slots= has one slot for each of its GPUs, or one slot. max_slots\n"
     "is the limit of --oversubscribe. -H takes a list: -H node1:4,me@node3:2.\n",
     NULL},
    {"config", "options in a file (--config-file)", "hvdrun.conf.5",
     "--config-file FILE reads options from a YAML file. A key is the long name of an\n"
     "option with _ for -, or one of horovodrun's keys. The command line and variables\n"
     "override the file:\n"
     "\n"
     "  num_proc: 8\n"
     "  hosts: node1:4,node2:4\n"
     "  tag: rank\n"
     "  env:\n"
     "    OMP_NUM_THREADS: 4\n",
     NULL},
    {"rendezvous", "how programs that do not know hvdrun find each other", "hvd-rendezvous.7",
     "--rendezvous LIST names the methods that ranks are offered, separated by commas:\n"
     "\n"
     "  env      RANK, WORLD_SIZE, MASTER_ADDR, ... for torch and many scripts\n"
     "  pmix     Open MPI, mpi4py          pmi1     MPICH\n"
     "  gloo     Horovod with Gloo         jax      jax.distributed\n"
     "  auto     all of these: the default\n"
     "  tf       TF_CONFIG of TensorFlow   paddle   PaddlePaddle\n"
     "  none     nothing; programs that use libhvd need nothing\n",
     NULL},
    {"torch", "scripts for torch.distributed and torchrun", NULL,
     "Scripts for torchrun run as they are: hvdrun -np 4 python3 train.py. Ranks find\n"
     "all variables that torchrun sets (man hvd-environment).\n"
     "\n"
     "  torchrun --nproc-per-node 4 --nnodes 2 --rdzv-endpoint node1 train.py\n"
     "  hvdrun -np 8 -H node1:4,node2:4 python3 train.py\n"
     "\n"
     "init_process_group(\"hvd\") uses hvdrun's engine: faster than gloo for tensors in\n"
     "host memory, and a dead rank is named at once. gloo and nccl work, too. For CUDA\n"
     "tensors take nccl.\n"
     "\n"
     "OMP_NUM_THREADS is 1 on hosts with several ranks, as with torchrun: a rank would\n"
     "otherwise start a thread for each processor of the host. -x OMP_NUM_THREADS=4\n"
     "gives each rank more. A rank that writes the file TORCHELASTIC_ERROR_FILE, as\n"
     "functions with @record do, is named with its message.\n",
     NULL},
    {"horovod", "scripts for Horovod and horovodrun", NULL,
     "Flags, variables and files of horovodrun are taken as they are; horovodrun is\n"
     "another name of hvdrun. Scripts for horovod.torch run unchanged on hvdrun's own\n"
     "package, which hvdrun's wheels bring, and stock Horovod with Gloo runs, too.\n"
     "\n"
     "  horovodrun -np 4 -H node1:2,node2:2 python3 train.py\n"
     "  hvdrun -np 4 --min-np 2 --host-discovery-script ./hosts.sh python3 train.py\n"
     "\n"
     "--mpi, --gloo and --jsrun need nothing here. --timeline-filename makes one file\n"
     "of all ranks. A rank that dies is named with its host, its end and its last\n"
     "lines, and the others' calls end with HorovodInternalError.\n"
     "\n"
     "Both packages provide the module horovod. If stock Horovod was installed over\n"
     "hvdrun's, importing it ends with a line that has the command to mend it.\n"
     "\n"
     "hvdrun help flags compares the flags; docs/python.md is the manual of Python.\n",
     NULL},
    {"tensorflow", "scripts for TensorFlow's MultiWorkerMirroredStrategy", NULL,
     "TensorFlow finds the ranks by TF_CONFIG, which has to be asked for:\n"
     "\n"
     "  hvdrun -np 4 -H node1:2,node2:2 --rendezvous auto,tf python3 train.py\n"
     "\n"
     "Each rank is a worker with a port of its own; rank 0 is the chief. Each rank\n"
     "sees all GPUs of its host: --gpu-bind single gives each rank one of them.\n"
     "\n"
     "horovod.tensorflow is no part of hvdrun's package. Stock Horovod with Gloo\n"
     "serves it: hvdrun help horovod.\n"
     "\n"
     "If ranks wait at the start: a firewall between the hosts? --port-range 7000-7099\n"
     "chooses the ports. hvd-rendezvous(7) has the variables.\n",
     NULL},
    {"mpi", "programs of Open MPI, MPICH and mpi4py", NULL,
     "Programs of MPI run as under mpirun. Open MPI and mpi4py find the ranks by PMIx,\n"
     "MPICH by PMI-1; both are offered without being asked for.\n"
     "\n"
     "  hvdrun -np 8 -H node1:4,node2:4 ./program\n"
     "  hvdrun -np 4 --bind-to core --map-by socket ./program\n"
     "  hvdrun -np 2 ./ocean : -np 6 ./atmosphere\n"
     "  hvdrun -np 4 -x OMPI_MCA_pml=ob1 ./program        settings of Open MPI\n"
     "\n"
     "If every rank says that it is rank 0 of 1, the program's library has no PMIx:\n"
     "hvdrun --check-build shows whether hvdrun has it. MPI_Comm_spawn is refused.\n"
     "MPI_Abort ends the job with its code. mpirun inside a rank wants\n"
     "--rendezvous none.\n"
     "\n"
     "hvdrun help flags has mpirun's flags with hvdrun's options for them.\n",
     NULL},
    {"slurm", "hvdrun in batch jobs of Slurm, LSF, PBS and Grid Engine", NULL,
     "In a batch job hvdrun takes the hosts and slots of that job:\n"
     "\n"
     "  #!/bin/bash\n"
     "  #SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4\n"
     "  hvdrun python3 train.py\n"
     "\n"
     "Without -np there is a rank for each task. Hosts of Slurm are reached by srun,\n"
     "so no SSH is needed. -H or --hostfile name others.\n"
     "\n"
     "  hvdrun --dry-run COMMAND        the hosts, slots and ranks\n"
     "  --rsh ssh                       hosts are reached by SSH all the same\n"
     "  --timeout 3500                  ends the job before the batch system does, and\n"
     "                                  prints where each rank is\n"
     "\n"
     "scancel ends all ranks on all hosts. An elastic job follows scontrol update:\n"
     "contrib/slurm-hosts.sh. BATCH SYSTEMS in hvdrun(1) has LSF, PBS, Grid Engine.\n",
     NULL},
    {"ssh", "hosts that are reached over SSH", NULL,
     "hvdrun has SSH built in. It reads ~/.ssh/config and known_hosts, and uses\n"
     "ssh-agent and the usual keys. It never asks for a password.\n"
     "\n"
     "  ssh-copy-id node2                        once for each host\n"
     "  hvdrun -np 4 -H node1:2,me@node2:2 ./train\n"
     "  -p 2222, -i ~/.ssh/cluster               another port, another key\n"
     "  --rsh 'ssh -J gateway'                   the ssh program does it\n"
     "  --send-agent                             hvdagent is not installed there\n"
     "\n"
     "\"no key accepted\": ssh node2 true must work without a question. \"host key\":\n"
     "ssh node2 once, and compare the key. \"no answer\": the host is down, or a\n"
     "firewall drops packets. \"no hvdagent\": --agent-path names it, or --send-agent.\n"
     "\n"
     "The working directory must be on each host: --wdir, --wdir-or-home, --preload.\n",
     NULL},
    {"elastic", "jobs that lose and gain hosts and go on", NULL,
     "A job with --min-np goes on when a rank or a host dies, and takes new hosts:\n"
     "\n"
     "  hvdrun -np 4 --min-np 2 -H node1:2,node2:2 python3 train.py\n"
     "  hvdrun -np 4 --min-np 2 --max-np 8 --host-discovery-script ./hosts.sh ./train\n"
     "\n"
     "The script prints a line \"host:slots\" for each host, and is run every second.\n"
     "Scripts for hvd.elastic.run of Horovod run unchanged; a state is committed\n"
     "every few steps, and survivors go on from the last commit.\n"
     "\n"
     "  hvdctl resize JOB 6             another number of ranks\n"
     "  hvdctl leave JOB                its ranks on this host leave at a commit\n"
     "  --blacklist-cooldown-range 10 60    a host that failed is tried again\n"
     "\n"
     "--max-restarts starts a job again as a whole, when too few ranks are left.\n"
     "docs/elastic.md is the guide, ELASTIC JOBS in hvdrun(1) the manual.\n",
     NULL},
    {"flags", "flags of horovodrun and mpirun, with hvdrun's options for them", "hvdrun-flags.7",
     "Flags of horovodrun mean the same here. Common flags of mpirun, with hvdrun's\n"
     "option for each:\n"
     "\n"
     "  -n, -c           -np                     -wdir        --wdir\n"
     "  -machinefile     --hostfile              -tag-output  --tag rank\n"
     "  -npernode N      --ppr N                 -x           -x\n"
     "  --preload-files  --preload               --preload-binary  --preload\n"
     "  -npersocket N    --ppr N:socket          -rf          -rf\n"
     "  --mca plm_rsh_agent COMMAND              --rsh COMMAND\n",
     NULL},
    {"gpus", "slots, NCCL and MPS on hosts with GPUs", NULL,
     "A host has a slot for each of its GPUs, and its ranks see them in the order of\n"
     "the PCI bus. NCCL combines tensors in GPU memory if each rank has a GPU of its\n"
     "own. Otherwise they go through host memory; --log-level info gives the reason.\n"
     "\n"
     "  hvdrun --check-build          driver, NCCL and MPS of this host\n"
     "  hvdrun --dry-run COMMAND      its GPUs\n"
     "  --gpu-bind single             each rank sees one GPU only\n"
     "  -x CUDA_VISIBLE_DEVICES=2,3   ranks get these GPUs; the slots stay\n"
     "  --gpu-placement engine        one process of each host calls NCCL\n"
     "  --gpu-require-nccl            the job ends if NCCL cannot be used\n"
     "  --mps auto                    CUDA's multi-process service for shared GPUs\n"
     "\n"
     "GPUS in hvdrun(1) has the rest: hvdrun help hvdrun.\n",
     NULL},
    {"agent", "hvdagent, which supervises the ranks of a host", "hvdagent.8",
     "hvdrun starts one hvdagent on each host, or asks the host's managed agent. It\n"
     "looks for hvdagent beside hvdrun's own path on that host, then on PATH.\n"
     "--agent-path names another file.\n",
     NULL},
    {"hvdctl", "shows and ends the jobs of a host", "hvdctl.1",
     "hvdctl shows and ends the jobs of the host on which it runs:\n"
     "\n"
     "  hvdctl ps              lists the jobs\n"
     "  hvdctl status JOB      its ranks: process, state, time, memory\n"
     "  hvdctl logs -f JOB     the output of its ranks\n"
     "  hvdctl kill JOB        ends the job on all its hosts\n"
     "  hvdctl top             all jobs, again and again\n"
     "  hvdctl metrics         figures for Prometheus\n"
     "  hvdctl node            the slots of the managed agent, and their jobs\n"
     "  hvdctl drain, undrain  it accepts no new jobs; it accepts jobs again\n",
     NULL},
    {"library", "libhvd, for programs of your own", "hvd.3",
     "hvd.h and libhvd are collective operations in C:\n"
     "\n"
     "  hvd_init();\n"
     "  hvd_allreduce(\"gradient\", data, data, count, HVD_FLOAT32, HVD_SUM, NULL);\n"
     "  hvd_shutdown();\n",
     NULL},
};
#define TOPICS (sizeof topics / sizeof *topics)

static void print_topics(FILE *out)
{
    fputs("hvdrun help TOPIC:\n\n", out);
    for (size_t i = 0; i < TOPICS; i++)
        fprintf(out, "  %-12s %s\n", topics[i].name, topics[i].about);
}

static int unknown_topic(const char *word, struct err *e)
{
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < TOPICS && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", topics[i].name);
    err_set(e, ERR_USAGE, "help: there is no topic '%.80s'", word);
    return err_hint(e, "topics: %s", names);
}

/* NULL with *e, or with an empty *e when no topic is named. */
static const struct topic *find_topic(char *const words[], struct err *e)
{
    if (!words[0])
        return NULL;
    for (size_t i = 0; i < TOPICS; i++) {
        if (strcmp(topics[i].name, words[0]) != 0)
            continue;
        const char *surplus = strcmp(words[0], "options") == 0 ? (words[1] ? words[2] : NULL) : words[1];
        if (!surplus)
            return &topics[i];
        err_set(e, ERR_USAGE, "help %s: '%.80s' is too much", words[0], surplus);
        return NULL;
    }
    unknown_topic(words[0], e);
    return NULL;
}

/* All groups in whose name `part` is. */
static int print_groups(const char *part, FILE *out, struct err *e)
{
    const char *group = "";
    bool found = false;
    for (size_t i = 0; i < config_program.count; i++) {
        const char *next = config_program.spec[i].group;
        if (strcmp(group, next) != 0 && strcasestr(next, part)) {
            options_print_group(&config_program, next, out);
            found = true;
        }
        group = next;
    }
    if (found)
        return 0;
    err_set(e, ERR_USAGE, "help options: there is no group '%.80s'", part);
    return err_hint(e, "hvdrun help options lists them");
}

/* The short text only, as without man(1). */
static int help_print(char *const words[], FILE *out, struct err *e)
{
    const struct topic *topic = find_topic(words, e);
    if (e->code)
        return -1;
    if (!topic) {
        print_topics(out);
        return 0;
    }
    if (words[1])
        return print_groups(words[1], out, e);
    if (topic->text)
        fputs(topic->text, out);
    if (topic->print)
        topic->print(out);
    return 0;
}

static bool find_page(const char *page, char *path, size_t size)
{
    char dir[PATH_MAX];
    struct err e = ERR_INIT;
    if (module_program_dir(dir, sizeof dir, &e) < 0)
        return false;
    int n = snprintf(path, size, "%s/../share/man/man%c/%s", dir, page[strlen(page) - 1], page);
    if (n > 0 && (size_t)n < size && access(path, R_OK) == 0)
        return true;
    n = snprintf(path, size, "%s/../man/%s", dir, page);
    return n > 0 && (size_t)n < size && access(path, R_OK) == 0;
}

int help_show(char *const words[], FILE *out, struct err *e)
{
    char path[2 * PATH_MAX];
    const struct topic *topic = find_topic(words, e);
    if (e->code)
        return -1;
    if (topic && topic->page && find_page(topic->page, path, sizeof path)) {
        fflush(out);
        execlp("man", "man", "-l", path, (char *)NULL);
    }
    return help_print(words, out, e);
}
