/* A bulk frame of a link: data that is sent from where it lies. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LINKS_CONTROL_MAX (64u << 10) /* bytes of one control frame */
/* Bytes of one bulk frame: what a control frame may have to wait behind. */
#define LINKS_BULK_MAX (1u << 20)

/* The sender's description of a bulk frame; opaque to the links. */
struct link_bulk {
    uint64_t sequence; /* an engine's: operation, its number on the execution list */
    uint64_t offset;   /* bytes */
    uint32_t length;   /* at most LINKS_BULK_MAX */
    uint16_t channel;  /* an engine's: phase of the operation */
};

/* A bulk frame on its way. The owner provides it; it and the data stay valid and unchanged until done(). */
struct link_send {
    struct link_bulk head;
    const void *data;
    /* status 0: the kernel has taken all of it; -1: the link is lost. */
    void (*done)(struct link_send *send, int status);
    void *ctx;
    /* The links' own: */
    struct link_send *next;
    uint64_t number; /* among the link's bulk frames */
    uint32_t check;  /* of the data, once `checked` */
    bool checked;
};
