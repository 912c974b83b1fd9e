/* A row that became prose:
 *
 *   RUNNING      until every rank has ended
 *   INSPECTING   the time limit is over, until all have answered or
 * are late PARTING      a fault while engines are in use
 */

/* A row that lost its rest:
 *
 *   CLOSED     the connection lives on, or
 * not */

/* A table as it must be:
 *
 *   READING    the frame comes
 *   DECIDING   a lease is written,
 *              or the client is refused
 *
 * And prose again. */

/* ---- a rule that a formatter has broken
 * ------------------------------------------------------------ */

/* ---- a rule --------------------------------------------------------------- */

/* ---- a title ----
 *
 * With a text. */

enum place {
    INLINE = 1,  /* in the entry; results go to the slot's result, or are computed by
                    each   rank itself */
    SEGMENT = 2, /* at the addresses,
                    both of them */
};
