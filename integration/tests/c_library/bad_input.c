/* Bad arguments of every kind: each is an error with words, and none ends the program. */
#include "check.h"
#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

/* A call that must return this code, and words about it. */
#define FAILS(expected, call)                                                                      \
    do {                                                                                           \
        int code_ = (int)(call);                                                                   \
        if (code_ != (expected) || vm_last_error()[0] == 0) {                                      \
            fprintf(stderr, "%s:%d: %s returns %d (%s) and not %d: %s\n", __FILE__, __LINE__,      \
                    #call, code_, vm_strerror(code_), (expected), vm_last_error());                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void nulls(vm_task *vm)
{
    vm_message *message;
    vm_event event;
    vm_tid tid = vm_mytid(vm);
    vm_spawn *spawn;
    vm_group *group;
    size_t count;
    double value = 1;

    FAILS(VM_EINVAL, vm_exit(NULL, 0));
    CHECK(vm_mytid(NULL) == VM_TID_NONE && vm_parent(NULL) == VM_TID_NONE);
    CHECK(vm_app(NULL) == VM_TID_NONE && vm_index(NULL) == VM_EINVAL);
    FAILS(VM_EINVAL, vm_siblings(vm, NULL, 1, &count));
    FAILS(VM_EINVAL, vm_siblings(vm, &tid, 1, NULL));
    FAILS(VM_EINVAL, vm_hosts(vm, NULL, 4, &count));
    FAILS(VM_EINVAL, vm_host(NULL));
    FAILS(VM_EINVAL, vm_tid_format(vm, tid, NULL, 8));
    FAILS(VM_EINVAL, vm_tid_parse(vm, NULL, &tid));
    tid = vm_mytid(vm);
    FAILS(VM_EINVAL, vm_tid_parse(vm, "t1.1", NULL));
    FAILS(VM_EINVAL, vm_start_tasks(vm, NULL, NULL, 1, &tid));
    tid = vm_mytid(vm);
    FAILS(VM_EINVAL, vm_start_tasks(vm, "true", NULL, 1, NULL));
    FAILS(VM_EINVAL, vm_start_tasks(vm, "true", NULL, 0, NULL));
    FAILS(VM_EINVAL, vm_spawn_new(NULL, &spawn));
    CHECK(spawn == NULL);
    FAILS(VM_EINVAL, vm_spawn_new("true", NULL));
    FAILS(VM_EINVAL, vm_spawn_arg(NULL, "x"));
    FAILS(VM_EINVAL, vm_send(NULL, tid, 1, NULL, 0));
    FAILS(VM_EINVAL, vm_send(vm, tid, 1, NULL, 1));
    FAILS(VM_EINVAL, vm_send_array(vm, tid, 1, NULL, 1, VM_DOUBLE));
    FAILS(VM_EINVAL, vm_multicast(vm, NULL, 1, 1, "x", 1));
    FAILS(VM_EINVAL, vm_recv(vm, tid, 1, NULL));
    FAILS(VM_EINVAL, vm_recv_into(vm, tid, 1, NULL, 1, 0, NULL));
    FAILS(VM_EINVAL, vm_recv_array(vm, tid, 1, NULL, 1, VM_INT8, 0, NULL));
    FAILS(VM_EINVAL, vm_next(vm, tid, 1, 0, NULL, &event));
    FAILS(VM_EINVAL, vm_next(vm, tid, 1, 0, &message, NULL));
    FAILS(VM_EINVAL, vm_recv_event(vm, 0, NULL));
    FAILS(VM_EINVAL, vm_message_read(NULL, &value, 1, VM_DOUBLE));
    FAILS(VM_EINVAL, vm_message_count(NULL, VM_DOUBLE));
    CHECK(vm_message_size(NULL) == 0 && vm_message_data(NULL) == NULL);
    CHECK(vm_message_from(NULL) == VM_TID_NONE && vm_message_tag(NULL) == 0);
    FAILS(VM_EINVAL, vm_join(vm, NULL, &group));
    FAILS(VM_EINVAL, vm_join(vm, "bad", NULL));
    FAILS(VM_EINVAL, vm_barrier(vm, NULL));
    FAILS(VM_EINVAL, vm_allreduce(vm, NULL, VM_SUM, &value, 1, VM_DOUBLE));
    FAILS(VM_EINVAL, vm_wait(NULL, NULL));
    FAILS(VM_EINVAL, vm_wait_any(vm, NULL, 3, &count, NULL));
    FAILS(VM_EINVAL, vm_wait_all(vm, NULL, 3, NULL));
    FAILS(VM_EINVAL, vm_cancel(NULL));
    FAILS(VM_EINVAL, vm_drain(vm, NULL, NULL));
    FAILS(VM_EINVAL, vm_init(NULL));
    CHECK(vm_message_free(NULL) == VM_OK && vm_task_free(NULL) == VM_OK);
    CHECK(vm_spawn_free(NULL) == VM_OK && vm_group_free(NULL) == VM_OK);
    CHECK(vm_blocks_free(NULL) == VM_OK);
}

static void numbers_out_of_range(vm_task *vm)
{
    vm_tid me = vm_mytid(vm);
    vm_message *message = (vm_message *)&me;
    vm_envelope envelope;
    double values[2] = {1, 2};
    char bytes[17] = {0};
    int64_t longs[1];
    float floats[1];

    CHECK(VM_TYPE_OF(values) == VM_DOUBLE && VM_TYPE_OF(longs) == VM_INT64);
    CHECK(VM_TYPE_OF(floats) == VM_FLOAT);

    FAILS(VM_EINVAL, vm_send(vm, me, VM_ANY_TAG, "x", 1));
    FAILS(VM_ENOTASK, vm_send(vm, VM_TID_NONE, 1, "x", 1));
    FAILS(VM_EINVAL, vm_recv(vm, VM_TID_NONE, 1, &message));
    CHECK(message == NULL);
    FAILS(VM_EINVAL, vm_send_array(vm, me, 1, values, 2, 0));
    FAILS(VM_EINVAL, vm_send_array(vm, me, 1, values, 2, 11));
    FAILS(VM_EINVAL, vm_send_array(vm, me, 1, values, SIZE_MAX / 2, VM_DOUBLE));
    FAILS(VM_EINVAL, vm_send_array(vm, me, 1, bytes + 1, 1, VM_DOUBLE));
    FAILS(VM_EINVAL, vm_send(vm, me, 1, values, SIZE_MAX));
    CHECK(vm_recv_timeout(vm, VM_ANY_SOURCE, VM_ANY_TAG, 1, &message) == VM_NOTHING);
    FAILS(VM_ENOHOST, vm_move(vm, me, "nowhere", NULL));
    FAILS(VM_EINVAL, vm_move(vm, me, "\xff\xfe", NULL));

    /* The wrong length leaves the message where it is. */
    CHECK(vm_send(vm, me, 3, "123456789", 9) == VM_OK);
    FAILS(VM_ESPACE, vm_recv_into(vm, me, 3, bytes, 8, 1000, &envelope));
    FAILS(VM_ETYPE, vm_recv_array(vm, me, 3, values, 2, VM_DOUBLE, 1000, &envelope));
    CHECK(vm_probe(vm, me, 3, &envelope) == VM_OK && envelope.size == 9 && envelope.tag == 3);
    CHECK(vm_recv(vm, me, 3, &message) == VM_OK);
    FAILS(VM_ETYPE, vm_message_count(message, VM_DOUBLE));
    CHECK(vm_message_count(message, VM_UINT8) == 9);
    FAILS(VM_ETYPE, vm_message_read(message, values, 2, VM_DOUBLE));
    FAILS(VM_EINVAL, vm_message_read(message, bytes, 9, 77));
    CHECK(vm_message_read(message, bytes, 9, VM_INT8) == VM_OK && bytes[8] == '9');

    /* Freed handles, handles of another type, and what never was one. */
    FAILS(VM_EINVAL, vm_spawn_arg((vm_spawn *)message, "x"));
    CHECK(strstr(vm_last_error(), "vm_message") != NULL);
    CHECK(vm_message_free(message) == VM_OK);
    FAILS(VM_EINVAL, vm_message_free(message));
    CHECK(strstr(vm_last_error(), "freed") != NULL);
    CHECK(vm_message_data(message) == NULL);
    FAILS(VM_EINVAL, vm_message_free((vm_message *)values));
    FAILS(VM_EINVAL, vm_kill((vm_task *)bytes, me));
}

static void groups(vm_task *vm)
{
    vm_group *group;
    int32_t values[2] = {1, 2}, result[2];
    vm_blocks *blocks;
    CHECK(vm_join(vm, "one", &group) == VM_OK);
    FAILS(VM_EINVAL, vm_allreduce(vm, group, 0, values, 2, VM_INT32));
    FAILS(VM_EINVAL, vm_allreduce(vm, group, VM_SUM, values, 2, -1));
    FAILS(VM_EINVAL, vm_allreduce_by(vm, group, NULL, NULL, VM_ANY_ORDER, values, 2, VM_INT32));
    FAILS(VM_ENOINSTANCE, vm_broadcast(vm, group, 9, values, 2, VM_INT32));
    FAILS(VM_ESPACE, vm_allgather(vm, group, values, 2, result, 1, VM_INT32));
    FAILS(VM_EINVAL, vm_allgather(vm, group, values, SIZE_MAX, result, SIZE_MAX, VM_INT32));
    FAILS(VM_EINVAL, vm_gather(vm, group, 0, values, 2, NULL, 2, VM_INT32));
    FAILS(VM_EINVAL, vm_alltoallv(vm, group, values, NULL, VM_INT32, &blocks));
    FAILS(VM_EINVAL, vm_allgatherv(vm, group, values, 2, VM_INT32, NULL));
    CHECK(vm_allgather(vm, group, values, 2, result, 2, VM_INT32) == VM_OK && result[1] == 2);
    CHECK(vm_leave(vm, group) == VM_OK);
    FAILS(VM_EINVAL, vm_allgather(vm, group, values, 2, result, 2, VM_INT32));
    FAILS(VM_EINVAL, vm_group_size(group));

    /* A second handle of a group that the first one has left. */
    vm_group *first, *second;
    CHECK(vm_join(vm, "two", &first) == VM_OK && vm_join(vm, "two", &second) == VM_OK);
    CHECK(vm_leave(vm, first) == VM_OK);
    FAILS(VM_ENOTMEMBER, vm_refresh(vm, second));
    FAILS(VM_ENOTMEMBER, vm_leave(vm, second));
    FAILS(VM_EINVAL, vm_leave(vm, second));
}

/* A forked child is no task, and does not disturb its parent. */
static void forks(vm_task *vm)
{
    vm_tid me = vm_mytid(vm);
    vm_request *request;
    vm_message *message;
    int status;
    CHECK(vm_start_recv(vm, me, 8, &request) == VM_OK);
    pid_t child = fork();
    if (child == 0) {
        FAILS(VM_ELEFT, vm_send(vm, me, 8, "of the child", 12));
        FAILS(VM_ELEFT, vm_init(&vm));
        FAILS(VM_ELEFT, vm_test(&request, &message));
        exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(vm_test(&request, &message) == VM_NOTHING);
    CHECK(vm_send(vm, me, 8, "mine", 4) == VM_OK);
    CHECK(vm_wait(&request, &message) == VM_OK && vm_message_size(message) == 4);
    CHECK(vm_message_free(message) == VM_OK);
}

int main(void)
{
    vm_task *vm;
    CHECK(vm_last_error()[0] == 0);
    CHECK(vm_init(&vm) == VM_OK);
    nulls(vm);
    numbers_out_of_range(vm);
    groups(vm);
    forks(vm);
    CHECK(strcmp(vm_strerror(VM_OK), "success") == 0 && vm_strerror(INT_MIN)[0] != 0);
    CHECK(vm_exit(vm, 3) == VM_OK);
    FAILS(VM_ELEFT, vm_exit(vm, 3));
    CHECK(vm_task_free(vm) == VM_OK);
    FAILS(VM_EINVAL, vm_task_free(vm));
    printf("all bad input is refused\n");
    return 0;
}
