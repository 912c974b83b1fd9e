/* The end of a job: every host is asked to end, and given up when it takes too long. */
#pragma once

struct job;

/* Asks every host to end. A fault gives workers the grace period; a signal that came twice, or a job whose
 * workers have all ended, gives none. Again when the user insists. */
void job_ending_begin(struct job *j);
/* A host has got further on its way out. */
void job_ending_progress(struct job *j);
