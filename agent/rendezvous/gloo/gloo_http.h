/* Module `gloo`: HTTP for the Gloo rendezvous (libmicrohttpd), opened at the first knock.
 *
 * It reads requests and writes answers; what they mean is its owner's business (gloo.c). A request that is to
 * be held stays until `wake` names its path or its patience is over, and is then asked about again. All on
 * the loop's thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "agent/rendezvous/gloo/gloo_store.h"
#include "common/base/err.h"

#define GLOO_MODULE      "gloo"
#define GLOO_MODULE_FILE GLOO_MODULE ".so"
#define GLOO_SYMBOL      "hvd_gloo_http"

enum gloo_verb { GLOO_GET, GLOO_PUT, GLOO_DELETE };

struct gloo_request {
    enum gloo_verb verb;
    struct gloo_path path;
    struct gloo_value *body; /* of a PUT; whoever keeps it shares it */
    bool may_hold;           /* false: it was held for as long as may be */
};

struct gloo_http_config {
    unsigned connections; /* at once; further ones are closed */
    size_t body;          /* bytes of one value */
    size_t bodies;        /* of all that are on their way */
    unsigned hold_ms;
};

/* The status, with a value for 200 in *answer (a reference for the callee); 0: hold it, if it may be. */
typedef unsigned gloo_http_serve(void *ctx, const struct gloo_request *request, struct gloo_value **answer);

struct gloo_http;

struct gloo_http_ops {
    struct gloo_http *(*start)(uv_loop_t *loop, const struct gloo_http_config *config, gloo_http_serve *serve,
                               void *ctx, struct err *e);
    /* A connected socket; it is the module's from now on. */
    void (*add)(struct gloo_http *h, int fd);
    /* Requests that are held for this path are served again; NULL: all held requests, for the last time. */
    void (*wake)(struct gloo_http *h, const struct gloo_path *path);
    /* Ends what is held with 404 and closes everything; the handles are closed when the loop has run
     * again. */
    void (*stop)(struct gloo_http *h);
};
