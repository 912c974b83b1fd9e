/* hvdctl page JOB: the report of a running job as a page for a browser, as hvdrun's --report FILE.html writes
 * it at the end. With --json, the report itself. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/ctl/ask.h"
#include "agent/ctl/commands.h"
#include "common/page/page.h"
#include "common/protocol/message.h"

#define REPORT_MAX (64u << 20) /* bytes: who answers may be another user's process */

/* Appends the parts to `out` until the last one. */
static int read_parts(struct ctl_ask *a, const struct ctl_job *job, FILE *out, struct err *e)
{
    for (size_t size = 0;;) {
        Hvd__Answer *answer = ctl_ask_next(a, CTL_ANSWER_MS, e);
        if (!answer)
            return e->code ? -1 : err_set(e, ERR_CLOSED, "job %s has ended", job->name);
        if (answer->body_case != HVD__ANSWER__BODY_REPORT)
            message_printable(&answer->base);
        bool done = answer->body_case == HVD__ANSWER__BODY_DONE;
        size += answer->body_case == HVD__ANSWER__BODY_REPORT ? answer->report.len : 0;
        if (size > REPORT_MAX)
            err_set(e, ERR_PROTOCOL, "job %s: its report is too long", job->name);
        else if (answer->body_case == HVD__ANSWER__BODY_REPORT)
            fwrite(answer->report.data, 1, answer->report.len, out);
        else if (!done)
            err_set(e, ERR_HOST, "job %s: %s", job->name,
                    answer->body_case == HVD__ANSWER__BODY_REFUSED ? answer->refused : "it has no report");
        message_free(answer);
        if (done || e->code)
            return e->code ? -1 : 0;
    }
}

/* The JSON; the caller frees it. */
static char *read_report(const struct ctl_job *job, size_t *size, struct err *e)
{
    Hvd__Inquiry inquiry = HVD__INQUIRY__INIT;
    struct ctl_ask a;
    char *json = NULL;
    inquiry.kind = HVD__INQUIRY__KIND__REPORT;
    if (ctl_ask_open(&a, job, &inquiry, CTL_ANSWER_MS, e) < 0)
        return NULL;
    FILE *out = open_memstream(&json, size);
    if (out && read_parts(&a, job, out, e) == 0 && fflush(out) == 0 && *size == 0)
        err_set(e, ERR_HOST, "job %s has no report now", job->name);
    bool bad = !out || ferror(out);
    if (out && fclose(out) != 0)
        bad = true;
    if (bad && !e->code)
        err_set(e, ERR_MEMORY, "no memory for the report");
    ctl_ask_close(&a);
    if (!e->code)
        return json;
    free(json);
    return NULL;
}

FILE *ctl_create_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *out = fd >= 0 && fchmod(fd, 0600) == 0 ? fdopen(fd, "w") : NULL;
    if (!out && fd >= 0)
        close(fd);
    return out;
}

static int save_page(const struct ctl_config *c, const char *path, const char *json, size_t size,
                     struct err *e)
{
    bool is_stdout = strcmp(path, "-") == 0;
    FILE *out = is_stdout ? stdout : ctl_create_file(path);
    if (!out)
        return err_sys(e, errno, "cannot write %s", path);
    if (c->json)
        fwrite(json, 1, size, out);
    else
        page_write(out, json, size);
    bool failed = ferror(out) != 0;
    int closed = is_stdout ? fflush(out) : fclose(out);
    if (failed || closed != 0)
        return err_sys(e, errno ? errno : EIO, "cannot write %s", path);
    if (!is_stdout)
        printf("%s\n", path);
    return 0;
}

int ctl_page(const struct ctl_config *c, const struct ctl_job *job, struct err *e)
{
    char path[PATH_MAX];
    size_t size = 0;
    snprintf(path, sizeof path, "%s.html", job->name);
    char *json = read_report(job, &size, e);
    if (json)
        (void)save_page(c, c->file ? c->file : c->json ? "-" : path, json, size, e);
    free(json);
    return e->code ? EXIT_REFUSED : 0;
}
