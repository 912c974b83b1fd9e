/* A lifecycle as one table of (state, event) -> next state, action.
 *
 * The table is data that can be read and drawn; a pair that is not in it is logged and ignored. fsm_post is
 * the only way a state changes, and it logs each change with the time spent in the old state. Events posted
 * from within an action are queued and handled after it, never nested. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void fsm_action(void *owner);

struct fsm_row {
    uint8_t state;
    uint8_t event;
    uint8_t next;
    fsm_action *action; /* runs after the change; NULL: none */
};

struct fsm_table {
    const char *name; /* of the kind of thing, for the log */
    const char *const *states;
    const char *const *events;
    const struct fsm_row *rows;
    size_t row_count;
};

#define FSM_QUEUE_MAX 8

struct fsm {
    const struct fsm_table *table;
    void *owner;
    const char *label; /* names the machine in the log; valid as long as the fsm */
    uint64_t since;
    uint8_t state;
    uint8_t queue[FSM_QUEUE_MAX];
    uint8_t queued;
    bool running;
};

void fsm_init(struct fsm *m, const struct fsm_table *table, void *owner, const char *label, uint8_t state);
void fsm_post(struct fsm *m, uint8_t event);
const char *fsm_state_name(const struct fsm *m);
