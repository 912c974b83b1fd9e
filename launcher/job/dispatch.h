/* The top of a job: callbacks of its hosts, output and input, and the table of its parts. */
#pragma once

#include "launcher/host/host.h"
#include "launcher/io/input.h"
#include "launcher/io/output.h"
#include "launcher/job/part.h"

/* The context of all of them is the job. */
extern const struct host_events job_host_events;
extern const struct output_events job_output_events;
extern const struct input_events job_input_events;
/* All parts, ended by NULL. */
extern const struct job_part *const job_parts[];
