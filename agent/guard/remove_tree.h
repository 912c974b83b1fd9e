/* The end of a directory that is ours: that of a job, or that of an agent that was sent. */
#ifndef HVD_AGENT_GUARD_REMOVE_TREE_H
#define HVD_AGENT_GUARD_REMOVE_TREE_H

/* Empties the directory `name` in directory `at` and removes it, with directories in it up to `deep` levels;
 * links are removed, never followed. -1 with errno when it is still there, or was not. */
int remove_tree(int at, const char *name, int deep);

#endif
