/* The file in which a program of torch says why it fails: TORCHELASTIC_ERROR_FILE. Functions decorated with
 * torch.distributed.elastic's @record write it, and so do programs that know torchrun. It is JSON: the first
 * string under a name "message" counts. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ERROR_FILE_MAX  128 /* bytes of a path */
#define ERROR_TEXT_MAX  320 /* bytes of a sentence */
#define ERROR_BYTES_MAX 65536u

/* Writes the path of a rank's file in the job's directory to `path`, and returns it. */
const char *error_file_path(const char *directory, uint32_t rank, char path[ERROR_FILE_MAX]);
/* Writes the first line of the message that a file holds to `text`, and returns 0. -1: there is no such
 * file, or no message in it. Any content is fine. */
int error_file_read(const char *path, char text[ERROR_TEXT_MAX]);
/* The same for the file's content. */
int error_file_message(const char *json, size_t size, char text[ERROR_TEXT_MAX]);
