#include "agent/ctl/config.h"

#include <stddef.h>
#include <string.h>

#define WORDS_MAX 32

static const struct option_spec specs[] = {
#define CTL_ROW(ctype, field, type, flags, metavar, min, max, default_, help)                                \
    OPTION_ROW(struct ctl_config, field, type, flags, metavar, NULL, NULL, min, max, NULL, default_, NULL,   \
               "Options", help)
    CTL_OPTIONS(CTL_ROW)
#undef CTL_ROW
};

const struct options_program ctl_program = {
    .name = "hvdctl",
    .usage = "COMMAND [JOB or HOST] [options]",
    .about =
        "Shows and ends the jobs of this host: your own, or as root those of all users. ps lists the jobs, "
        "or those of HOST. "
        "status JOB shows its ranks and GPUs, or its place in the queue for slots. why JOB says which rank "
        "or host it waits for, and where that is. trace JOB writes what its ranks do for some seconds, for "
        "Perfetto. page JOB writes an HTML file about the job as it is now. logs JOB prints the last "
        "output of its ranks. kill JOB ends the job on all its hosts. top shows all jobs, again and again, "
        "until q. "
        "resize JOB N gives an elastic job N ranks; leave JOB lets its ranks on this host leave at their "
        "next "
        "commit. "
        "metrics prints figures about them for Prometheus. The other commands are about the managed agent "
        "of this host, or of HOST by ssh. node shows its slots, their jobs and the queue. gpus shows its "
        "GPUs. drain lets it accept no new jobs, and elastic jobs leave; undrain lets it accept jobs again. "
        "accept takes GPUs back "
        "that have had a fault. JOB is a name that ps shows, or its beginning.",
    .commands = "ps|status|why|trace|page|logs|kill|resize|leave|top|node|drain|undrain|gpus|accept|metrics",
    .spec = specs,
    .count = sizeof specs / sizeof *specs,
};

/* Is the word an option whose value is the next word? */
static bool takes_next(const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (const char *at = specs[i].flags; specs[i].metavar && (at = strstr(at, word)) != NULL; at += len)
            if (at[len] == '\0' || at[len] == ',')
                return true;
    return false;
}

/* The options first, then the other words: as people write them, in any order. */
static void sort_words(int argc, char *const argv[], char **sorted)
{
    int n = 0;
    for (int operands = 0; operands <= 1; operands++) {
        for (int i = 1; i < argc; i++) {
            bool option = argv[i][0] == '-', two = option && i + 1 < argc && takes_next(argv[i]);
            if (option != (operands == 1)) {
                sorted[n++] = argv[i];
                if (two)
                    sorted[n++] = argv[i + 1];
            }
            i += two;
        }
    }
    sorted[n] = NULL;
}

int ctl_config_parse(struct ctl_config *c, int argc, char *const argv[], struct err *e)
{
    char *none[] = {NULL}, *words[WORDS_MAX + 2] = {argv[0]};
    int next;
    memset(c, 0, sizeof *c);
    if (argc > WORDS_MAX)
        return err_set(e, ERR_USAGE, "more than %d words", WORDS_MAX);
    if (argc > 1 && takes_next(argv[argc - 1]))
        return err_set(e, ERR_USAGE, "%s needs a value", argv[argc - 1]);
    sort_words(argc, argv, words + 1);
    if (options_parse(&ctl_program, argc, words, none, c, &next, e) < 0)
        return -1;
    c->command = next < argc ? words[next++] : NULL;
    c->job = next < argc ? words[next++] : NULL;
    if (c->command && strcmp(c->command, "resize") == 0)
        c->number = next < argc ? words[next++] : NULL;
    if (next < argc && !c->help && !c->version)
        return err_set(e, ERR_USAGE, "unexpected argument: %s", words[next]);
    return 0;
}
