/* --pty: hvdrun's terminal belongs to one worker while that worker runs. */
#ifndef HVD_LAUNCHER_PARTS_PTY_H
#define HVD_LAUNCHER_PARTS_PTY_H

struct job;

/* After SIGCONT: the worker's terminal is raw again. */
void pty_resume(struct job *j);
/* Tells the worker the size of the user's terminal, if that worker runs. */
void pty_tell_window(struct job *j);

#endif
