/* The errors of OpenMPI 4, as it hands them to PMIx_Log (key PMIX_LOG_MSG): a file of help texts, a topic in
 * it, whether a text follows, and the text. Before each there is a 1, before a text its length; 4 bytes each,
 * in network order. */
#pragma once

#include <stddef.h>

/* The text, in place, and its length without the zero at its end. NULL: these bytes are something else. */
const char *pmix_help_read(const void *bytes, size_t size, size_t *len);
