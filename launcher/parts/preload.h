/* --preload: every host of the plan gets the files before its workers start. All hosts are sent to at once, and
 * each as fast as it takes the bytes. */
#ifndef HVD_LAUNCHER_PARTS_PRELOAD_H
#define HVD_LAUNCHER_PARTS_PRELOAD_H

struct job;

/* The path on this host of the file that the first word of a command means, or NULL when that word means no
 * file of --preload. */
const char *preload_local_path(const struct job *j, const char *command);

#endif
