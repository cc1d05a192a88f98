/* Every collective call of four members, with values that each member can check. A member moves itself
 * between the calls, if there is another host. */
#include "check.h"

enum { MEMBERS = 4, LONG = 20000 };

/* Keeps the number of the greater instance, and counts its calls. */
static void last(const void *one, const void *other, void *result, void *context)
{
    (void)one;
    ++*(int32_t *)context;
    *(int32_t *)result = *(const int32_t *)other;
}

static void plus(const void *one, const void *other, void *result, void *context)
{
    (void)context;
    *(double *)result = *(const double *)one + *(const double *)other;
}

static void reductions(vm_task *vm, vm_group *group, uint32_t me)
{
    static double values[LONG], sums[LONG];
    for (int i = 0; i < LONG; i++)
        values[i] = me + i;
    CHECK(vm_reduce(vm, group, 2, VM_SUM, values, me == 2 ? sums : NULL, LONG, VM_DOUBLE) == VM_OK);
    for (int i = 0; me == 2 && i < LONG; i++)
        CHECK(sums[i] == 6 + 4.0 * i);
    /* The result may take the place of the values. */
    CHECK(vm_reduce(vm, group, 0, VM_MAX, values, values, LONG, VM_DOUBLE) == VM_OK);
    CHECK(values[7] == (me == 0 ? 3 : me) + 7);

    uint8_t bits[2] = {(uint8_t)(1 << me), (uint8_t)~(1 << me)};
    CHECK(vm_allreduce(vm, group, VM_OR, bits, 2, VM_UINT8) == VM_OK);
    CHECK(bits[0] == 15 && bits[1] == 255);
    int64_t product[1] = {me + 1};
    CHECK(vm_allreduce(vm, group, VM_PRODUCT, product, 1, VM_INT64) == VM_OK);
    CHECK(product[0] == 24);
    float least[1] = {(float)me - 1.5f};
    CHECK(vm_allreduce(vm, group, VM_MIN, least, 1, VM_FLOAT) == VM_OK);
    CHECK(least[0] == -1.5f);
    /* All members see that a double has no bits. */
    CHECK(vm_allreduce(vm, group, VM_AND, values, 1, VM_DOUBLE) == VM_ESHAPE);

    int32_t calls = 0, instance[1] = {(int32_t)me}, greatest[1] = {-1};
    CHECK(vm_reduce_by(vm, group, 1, last, &calls, VM_BY_INSTANCE, instance, greatest, 1,
                       VM_INT32) == VM_OK);
    CHECK(greatest[0] == (me == 1 ? 3 : -1));
    CHECK(vm_allreduce_by(vm, group, last, &calls, VM_BY_INSTANCE, instance, 1, VM_INT32) == VM_OK);
    CHECK(instance[0] == 3);
    /* Not every member computes. */
    CHECK(vm_allreduce(vm, group, VM_SUM, &calls, 1, VM_INT32) == VM_OK && calls > 0);

    int16_t deep[2] = {(int16_t)(me % 2), (int16_t)me};
    uint32_t where[2];
    CHECK(vm_min_with_place(vm, group, deep, where, 2, VM_INT16) == VM_OK);
    CHECK(deep[0] == 0 && where[0] == 0 && deep[1] == 0 && where[1] == 0);
    deep[0] = (int16_t)(me % 2);
    deep[1] = (int16_t)me;
    CHECK(vm_max_with_place(vm, group, deep, where, 2, VM_INT16) == VM_OK);
    CHECK(deep[0] == 1 && where[0] == 1 && deep[1] == 3 && where[1] == 3);

    double running[1] = {me + 1.0};
    CHECK(vm_scan(vm, group, VM_SUM, running, 1, VM_DOUBLE) == VM_OK);
    CHECK(running[0] == (me + 1) * (me + 2) / 2.0);
    running[0] = 2;
    CHECK(vm_scan_by(vm, group, plus, NULL, running, 1, VM_DOUBLE) == VM_OK);
    CHECK(running[0] == 2.0 * (me + 1));
    running[0] = 5;
    CHECK(vm_exclusive_scan(vm, group, VM_SUM, running, 1, VM_DOUBLE) ==
          (me == 0 ? VM_NOTHING : VM_OK));
    CHECK(running[0] == (me == 0 ? 5 : 5.0 * me));
}

/* Whether a block of blocks has count numbers from first on. */
static int has(vm_blocks *blocks, size_t index, int32_t first, size_t count)
{
    const void *values;
    size_t found;
    if (vm_blocks_get(blocks, index, &values, &found) != VM_OK || found != count)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (((const int32_t *)values)[i] != first + (int32_t)i)
            return 0;
    return 1;
}

static void exchanges(vm_task *vm, vm_group *group, uint32_t me)
{
    double value[2] = {me == 3 ? 1.5 : 0, me == 3 ? 2.5 : 0};
    CHECK(vm_broadcast(vm, group, 3, value, 2, VM_DOUBLE) == VM_OK);
    CHECK(value[0] == 1.5 && value[1] == 2.5);
    vm_blocks *blocks;
    const char *text = "a text of the root";
    const void *bytes;
    size_t count;
    CHECK(vm_broadcast_bytes(vm, group, 0, me == 0 ? text : NULL, me == 0 ? strlen(text) : 0,
                             &blocks) == VM_OK);
    CHECK(vm_blocks_get(blocks, 0, &bytes, &count) == VM_OK);
    CHECK(count == strlen(text) && memcmp(bytes, text, count) == 0);
    CHECK(vm_blocks_free(blocks) == VM_OK);

    int32_t own[2] = {(int32_t)me * 2, (int32_t)me * 2 + 1}, all[2 * MEMBERS];
    CHECK(vm_gather(vm, group, 1, own, 2, me == 1 ? all : NULL, me == 1 ? 8 : 0, VM_INT32) ==
          VM_OK);
    for (int i = 0; me == 1 && i < 2 * MEMBERS; i++)
        CHECK(all[i] == i);
    memset(all, 0, sizeof all);
    CHECK(vm_allgather(vm, group, own, 2, all, 8, VM_INT32) == VM_OK);
    for (int i = 0; i < 2 * MEMBERS; i++)
        CHECK(all[i] == i);
    int32_t block[2];
    CHECK(vm_scatter(vm, group, 2, me == 2 ? all : NULL, 2, block, VM_INT32) == VM_OK);
    CHECK(block[0] == own[0] && block[1] == own[1]);
    int32_t to_each[MEMBERS], from_each[MEMBERS];
    for (int i = 0; i < MEMBERS; i++)
        to_each[i] = (int32_t)me * 10 + i;
    CHECK(vm_alltoall(vm, group, to_each, 1, from_each, VM_INT32) == VM_OK);
    for (int i = 0; i < MEMBERS; i++)
        CHECK(from_each[i] == i * 10 + (int32_t)me);

    /* Member i has i numbers, from 100 i on. */
    int32_t some[MEMBERS * MEMBERS];
    size_t counts[MEMBERS];
    for (int i = 0; i < MEMBERS; i++)
        some[i] = (int32_t)me * 100 + i;
    CHECK(vm_gatherv(vm, group, 0, some, me, VM_INT32, me == 0 ? &blocks : NULL) == VM_OK);
    for (int i = 0; me == 0 && i < MEMBERS; i++)
        CHECK(has(blocks, (size_t)i, i * 100, (size_t)i));
    if (me == 0)
        CHECK(vm_blocks_count(blocks) == MEMBERS && vm_blocks_free(blocks) == VM_OK);
    CHECK(vm_allgatherv(vm, group, some, me, VM_INT32, &blocks) == VM_OK);
    for (int i = 0; i < MEMBERS; i++)
        CHECK(has(blocks, (size_t)i, i * 100, (size_t)i));
    CHECK(vm_blocks_free(blocks) == VM_OK);

    /* Each gets as many numbers as its instance says, from the root and from each. */
    int next = 0;
    for (int i = 0; i < MEMBERS; i++) {
        counts[i] = (size_t)i;
        for (int j = 0; j < i; j++)
            some[next++] = (int32_t)me * 100 + j;
    }
    CHECK(vm_scatterv(vm, group, 1, me == 1 ? some : NULL, me == 1 ? counts : NULL, VM_INT32,
                      &blocks) == VM_OK);
    CHECK(has(blocks, 0, 100, me) && vm_blocks_free(blocks) == VM_OK);
    CHECK(vm_alltoallv(vm, group, some, counts, VM_INT32, &blocks) == VM_OK);
    for (int i = 0; i < MEMBERS; i++)
        CHECK(has(blocks, (size_t)i, i * 100, me));
    CHECK(vm_blocks_get(blocks, MEMBERS, &bytes, &count) == VM_EINVAL);
    CHECK(vm_blocks_free(blocks) == VM_OK);
    CHECK(vm_blocks_count(blocks) == VM_EINVAL);
}

static void members(vm_task *vm, vm_group *group, uint32_t me)
{
    char name[VM_NAME_SIZE];
    vm_member known[MEMBERS];
    vm_tid tid;
    size_t count;
    CHECK(vm_group_name(group, name, sizeof name) == VM_OK && strcmp(name, "c") == 0);
    CHECK(vm_group_name(group, name, 1) == VM_ESPACE);
    CHECK(vm_group_size(group) == MEMBERS);
    CHECK(vm_group_tid(group, me, &tid) == VM_OK && tid == vm_mytid(vm));
    CHECK(vm_group_tid(group, 77, &tid) == VM_ENOINSTANCE && tid == VM_TID_NONE);
    CHECK(vm_group_members(group, known, MEMBERS, &count) == VM_OK && count == MEMBERS);
    CHECK(known[me].tid == vm_mytid(vm) && known[me].instance == me);
    CHECK(vm_members(vm, "c", known, 1, &count) == VM_ESPACE && count == MEMBERS);
    CHECK(vm_members(vm, "no such group", known, MEMBERS, &count) == VM_ENOGROUP);
    CHECK(vm_refresh(vm, group) == VM_OK);
}

int main(int argc, char **argv)
{
    vm_task *vm;
    vm_group *group;
    vm_tid others[MEMBERS - 1];
    (void)argc;
    CHECK(vm_init(&vm) == VM_OK);
    int is_master = vm_parent(vm) == VM_TID_NONE;
    if (is_master)
        CHECK(vm_start_tasks(vm, argv[0], NULL, MEMBERS - 1, others) == VM_OK);
    CHECK(vm_join(vm, "", &group) == VM_EINVAL && group == NULL);
    CHECK(vm_join(vm, "c", &group) == VM_OK);
    CHECK(vm_await_members(vm, group, MEMBERS) == VM_OK);
    CHECK(vm_barrier(vm, group) == VM_OK);
    int64_t me = vm_group_instance(group);
    CHECK(me >= 0 && me < MEMBERS);
    members(vm, group, (uint32_t)me);
    for (int round = 0; round < 3; round++) {
        reductions(vm, group, (uint32_t)me);
        exchanges(vm, group, (uint32_t)me);
        if (!is_master && me == round + 1)
            CHECK(vm_move(vm, vm_mytid(vm), NULL, NULL) == VM_OK);
    }
    CHECK(vm_barrier(vm, group) == VM_OK);
    CHECK(vm_leave(vm, group) == VM_OK);
    /* The handle is freed. */
    CHECK(vm_barrier(vm, group) == VM_EINVAL);
    CHECK(vm_leave(vm, group) == VM_EINVAL);
    if (is_master) {
        for (int i = 0; i < MEMBERS - 1; i++) {
            vm_event event;
            CHECK(vm_watch_task(vm, others[i]) == VM_OK);
            CHECK(vm_recv_event(vm, 60000, &event) == VM_OK);
            CHECK(event.kind == VM_EVENT_TASK_ENDED && event.end == VM_END_LEFT);
            CHECK(event.status == 0);
        }
        printf("all collective calls are right\n");
    }
    return 0;
}
