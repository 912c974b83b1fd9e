/* The engine's table of process sets in a large job: 1000 ranks on 125 hosts, of which this is one. */
#include <check.h>
#include <stdlib.h>

#include "collectives/engine/engine.h"
#include "tests/unit/processor_time.h"

enum { HOSTS = 125, PER_HOST = 8, RANKS = HOSTS * PER_HOST, SELF = 7, OWN = SELF * PER_HOST };

static struct engine *engine;

static void make_engine(void)
{
    struct err e = ERR_INIT;

    engine = calloc(1, sizeof *engine);
    ck_assert_ptr_nonnull(engine);
    engine->size = RANKS;
    engine->hosts = HOSTS;
    engine->self = SELF;
    engine->workers.members = PER_HOST;
    engine->host = calloc(HOSTS, sizeof *engine->host);
    engine->place = calloc(RANKS, sizeof *engine->place);
    ck_assert(engine->host && engine->place);
    for (uint32_t h = 0; h < HOSTS; h++) {
        engine->host[h] =
            (struct host){.name = "node", .ranks = PER_HOST, .rank = calloc(PER_HOST, sizeof(uint32_t))};
        for (uint32_t i = 0; i < PER_HOST; i++) {
            engine->host[h].rank[i] = h * PER_HOST + i;
            engine->place[h * PER_HOST + i] = (struct rank_place){h, i};
        }
    }
    ck_assert_int_eq(engine_sets_start(engine, &e), 0);
}

static void free_engine(void)
{
    engine_sets_free(engine);
    for (uint32_t h = 0; h < HOSTS; h++)
        free(engine->host[h].rank);
    free(engine->host);
    free(engine->place);
    free(engine);
}

static uint32_t longest_chain(void)
{
    uint32_t longest = 0;

    for (uint32_t i = 0; i < ENGINE_SET_BUCKETS; i++) {
        uint32_t length = 0;
        for (const struct set *s = engine->sets.bucket[i]; s; s = s->next_in_bucket)
            length++;
        longest = length > longest ? length : longest;
    }
    return longest;
}

static bool is_found(uint32_t own, uint32_t other)
{
    const struct set *set = sets_find(engine, team_pair_id(own, other));

    return set && set->team->id == team_pair_id(own, other) &&
           (set->readiness != NULL) == (other / PER_HOST != SELF);
}

/* Each rank of this host sends to each rank of the job. */
START_TEST(all_pairs_are_found_at_once)
{
    uint32_t pairs = 0;

    for (int again = 0; again < 2; again++)
        for (uint32_t own = OWN; own < OWN + PER_HOST; own++)
            for (uint32_t other = 0; other < RANKS; other++) {
                if (other != own && !is_found(own, other)) /* Check writes each assertion down */
                    ck_abort_msg("ranks %u and %u", own, other);
                pairs += !again && other != own && (other / PER_HOST != SELF || other > own);
            }
    ck_assert_uint_eq(engine->sets.pairs, pairs);
    ck_assert_uint_le(longest_chain(), 16); /* two in a bucket on average */
}
END_TEST

START_TEST(pairs_of_others_are_not_made)
{
    ck_assert_ptr_null(sets_find(engine, team_pair_id(0, RANKS - 1)));
    ck_assert_ptr_null(sets_find(engine, team_pair_id(OWN, RANKS)));
    ck_assert_uint_eq(engine->sets.pairs, 0);
}
END_TEST

START_TEST(there_is_a_ceiling)
{
    struct set *last = sets_find(engine, team_pair_id(OWN, 1));

    engine->sets.pairs = ENGINE_PAIRS_MAX;
    ck_assert_ptr_null(sets_find(engine, team_pair_id(OWN, 2)));
    ck_assert_ptr_eq(sets_find(engine, team_pair_id(OWN, 1)), last);
}
END_TEST

/* A turn of the loop visits only the sets with work. */
START_TEST(idle_sets_are_left_alone)
{
    struct set *set = sets_find(engine, team_pair_id(OWN, 1));
    struct shm_header header = {0};

    engine->region.header = &header;
    engine->peers.up = true;
    ck_assert_ptr_null(engine->sets.active);
    sets_wake(engine, set);
    sets_wake(engine, engine->sets.world);
    sets_wake(engine, set);
    ck_assert(engine->sets.active == engine->sets.world && engine->sets.world->next_active == set &&
              !set->next_active);
    ck_assert(!remote_progress(engine));
    ck_assert(!engine->sets.active && !set->active && !engine->sets.world->active);
    sets_wake(engine, set);
    ck_assert_ptr_eq(engine->sets.active, set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("set table");
    TCase *tc = tcase_create("set table");
    SRunner *runner;
    int failed;

    case_computes(tc);
    tcase_add_checked_fixture(tc, make_engine, free_engine);
    tcase_add_test(tc, all_pairs_are_found_at_once);
    tcase_add_test(tc, pairs_of_others_are_not_made);
    tcase_add_test(tc, there_is_a_ceiling);
    tcase_add_test(tc, idle_sets_are_left_alone);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
