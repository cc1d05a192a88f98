/* Threads that share the handles of a task, which moves meanwhile: one waits in a call while others send and
 * receive, each has its own last error, a group has one call at a time, and a call that waits is left. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

enum { ASK = 1, ANSWER = 2, STOP = 3, NEVER = 99, ROUNDS = 200, THREADS = 3 };

static vm_task *vm;
static vm_group *group;
static atomic_int is_leaving;

/* Answers each question of its number with the question's value and 1. */
static void *answer(void *number)
{
    int32_t mine = *(int *)number, value;
    CHECK(vm_last_error()[0] == 0);
    CHECK(vm_message_free((vm_message *)number) == VM_EINVAL);
    for (;;) {
        vm_envelope envelope;
        CHECK(vm_recv_array(vm, vm_mytid(vm), mine * 10 + ASK, &value, 1, VM_INT32, VM_FOREVER,
                            &envelope) == VM_OK);
        if (value < 0)
            return NULL;
        value++;
        CHECK(vm_send_array(vm, vm_mytid(vm), mine * 10 + ANSWER, &value, 1, VM_INT32) == VM_OK);
    }
}

static void *await_other(void *unused)
{
    (void)unused;
    CHECK(vm_await_members(vm, group, 2) == VM_OK);
    return NULL;
}

static int leaves(void)
{
    return is_leaving;
}

static void *wait_in_vain(void *unused)
{
    vm_message *message;
    (void)unused;
    CHECK(vm_interrupt_when(leaves) == VM_OK);
    CHECK(vm_recv(vm, VM_ANY_SOURCE, NEVER, &message) == VM_EINTERRUPTED && message == NULL);
    CHECK(vm_interrupt_when(NULL) == VM_OK);
    CHECK(vm_try_recv(vm, VM_ANY_SOURCE, NEVER, &message) == VM_NOTHING);
    return NULL;
}

static void share_handles(void)
{
    pthread_t threads[THREADS], waiting;
    int numbers[THREADS];
    int32_t value;
    is_leaving = 0;
    CHECK(pthread_create(&waiting, NULL, wait_in_vain, NULL) == 0);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, answer, &numbers[i]) == 0);
    }
    CHECK(vm_send(vm, VM_TID_NONE, 1, NULL, 0) == VM_ENOTASK);
    for (int32_t round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < THREADS; i++)
            CHECK(vm_send_array(vm, vm_mytid(vm), i * 10 + ASK, &round, 1, VM_INT32) == VM_OK);
        for (int i = 0; i < THREADS; i++) {
            CHECK(vm_recv_array(vm, vm_mytid(vm), i * 10 + ANSWER, &value, 1, VM_INT32, VM_FOREVER,
                                NULL) == VM_OK);
            CHECK(value == round + 1);
        }
        /* All threads move with the task, wherever they are. */
        if (round == ROUNDS / 2)
            CHECK(vm_move(vm, vm_mytid(vm), NULL, NULL) == VM_OK);
    }
    CHECK(strstr(vm_last_error(), "no task") != NULL);
    value = -1;
    for (int i = 0; i < THREADS; i++) {
        CHECK(vm_send_array(vm, vm_mytid(vm), i * 10 + ASK, &value, 1, VM_INT32) == VM_OK);
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    is_leaving = 1;
    CHECK(pthread_join(waiting, NULL) == 0);
}

/* The second member joins when the first one is told that another thread uses the group. */
static void share_group(vm_tid parent)
{
    pthread_t thread;
    CHECK(vm_join(vm, "threads", &group) == VM_OK);
    CHECK(pthread_create(&thread, NULL, await_other, NULL) == 0);
    while (vm_group_size(group) != VM_EINUSE)
        continue;
    CHECK(strstr(vm_last_error(), "another thread") != NULL);
    CHECK(vm_send(vm, parent, ASK, NULL, 0) == VM_OK);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(vm_group_size(group) == 2);
    CHECK(vm_barrier(vm, group) == VM_OK && vm_leave(vm, group) == VM_OK);
}

int main(int argc, char **argv)
{
    (void)argc;
    CHECK(vm_init(&vm) == VM_OK);
    vm_tid parent = vm_parent(vm), child;
    if (parent != VM_TID_NONE) {
        share_handles();
        share_group(parent);
        CHECK(vm_send(vm, parent, STOP, NULL, 0) == VM_OK);
        return 0;
    }
    CHECK(vm_start_tasks(vm, argv[0], NULL, 1, &child) == VM_OK);
    CHECK(vm_recv_into(vm, child, ASK, NULL, 0, VM_FOREVER, NULL) == VM_OK);
    CHECK(vm_join(vm, "threads", &group) == VM_OK);
    CHECK(vm_await_members(vm, group, 2) == VM_OK);
    CHECK(vm_barrier(vm, group) == VM_OK && vm_leave(vm, group) == VM_OK);
    CHECK(vm_recv_into(vm, child, STOP, NULL, 0, VM_FOREVER, NULL) == VM_OK);
    printf("all threads are right\n");
    return 0;
}
