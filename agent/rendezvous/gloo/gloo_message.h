/* Messages between the stores of one job's hosts (broadcasts of TREE_GLOO):
 *
 *   | word (1) | length of the path (2) | /scope/key ... | value ... |       little endian
 */
#ifndef HVD_AGENT_RENDEZVOUS_GLOO_GLOO_MESSAGE_H
#define HVD_AGENT_RENDEZVOUS_GLOO_GLOO_MESSAGE_H

#include "agent/rendezvous/gloo/gloo_store.h"

enum gloo_word { GLOO_WORD_PUT = 1, GLOO_WORD_DELETE = 2 };

/* malloc'd; NULL when there is no memory. `value` of a PUT. */
uint8_t *gloo_message_write(enum gloo_word word, const struct gloo_path *path, const struct gloo_value *value,
                            size_t *len);
/* *path points into `data`; *value is new, NULL unless it is a PUT. -1 with *e, and nothing to release. */
int gloo_message_read(const uint8_t *data, size_t len, enum gloo_word *word, struct gloo_path *path,
                      struct gloo_value **value, struct err *e);

#endif
