/* Started sends and receives, callbacks around saves, hosts, ids, signals, drains and checkpoints. */
#include "check.h"
#include <signal.h>

enum { WORD = 1, BACK = 2, TAGS = 5, LEN = 300000 };

static int saved, resumed;

static int before_save(void *context)
{
    return *(int *)context;
}

static void after_save(void *context)
{
    (void)context;
    saved++;
}

static void after_resume(void *context)
{
    (void)context;
    resumed++;
}

/* Sends everything back with the tag that follows; counts its moves. */
static int echo(vm_task *vm, vm_tid caller)
{
    int refuses = 0;
    CHECK(vm_around_saves(vm, before_save, after_save, after_resume, &refuses) == VM_OK);
    CHECK(vm_around_saves(vm, NULL, NULL, NULL, NULL) == VM_EINVAL);
    for (;;) {
        vm_message *message;
        CHECK(vm_recv(vm, caller, VM_ANY_TAG, &message) == VM_OK);
        int32_t tag = vm_message_tag(message);
        if (tag == BACK) {
            int32_t counts[2] = {saved, resumed};
            CHECK(vm_send_array(vm, caller, BACK, counts, 2, VM_INT32) == VM_OK);
        } else {
            CHECK(vm_send(vm, caller, tag + 1000, vm_message_data(message),
                          vm_message_size(message)) == VM_OK);
        }
        CHECK(vm_message_free(message) == VM_OK);
        CHECK(vm_message_free(message) == VM_EINVAL);
    }
}

/* A message of one context is never received in another. */
static void contexts(vm_task *vm)
{
    vm_task *library, *same, *none = vm;
    vm_message *message;
    vm_tid me = vm_mytid(vm);
    CHECK(vm_context_number(vm) == 0 && vm_context_number(NULL) == VM_EINVAL);
    CHECK(vm_context(vm, NULL) == VM_EINVAL);
    CHECK(vm_context(vm, &library) == VM_OK && vm_context_number(library) > 0);
    CHECK(vm_in_context(vm, (uint32_t)vm_context_number(library), &same) == VM_OK);
    CHECK(vm_in_context(vm, UINT32_MAX, &none) == VM_EINVAL && none == NULL);
    CHECK(vm_send(library, me, WORD, "library", 8) == VM_OK);
    CHECK(vm_send(vm, me, WORD, "program", 8) == VM_OK);
    CHECK(vm_recv(vm, me, WORD, &message) == VM_OK);
    CHECK(strcmp(vm_message_data(message), "program") == 0);
    CHECK(vm_message_free(message) == VM_OK);
    CHECK(vm_try_recv(vm, me, VM_ANY_TAG, &message) == VM_NOTHING);
    CHECK(vm_recv(same, me, WORD, &message) == VM_OK);
    CHECK(strcmp(vm_message_data(message), "library") == 0);
    CHECK(vm_message_free(message) == VM_OK);
    CHECK(vm_task_free(library) == VM_OK && vm_task_free(same) == VM_OK);
}

static void requests(vm_task *vm, vm_tid other)
{
    static double numbers[LEN];
    vm_request *open[2 * TAGS + 1] = {NULL}, *one;
    vm_message *messages[2 * TAGS + 1], *message;
    for (int i = 0; i < LEN; i++)
        numbers[i] = i;
    for (int tag = 0; tag < TAGS; tag++) {
        CHECK(vm_start_recv(vm, other, tag + 1010, &open[2 * tag]) == VM_OK);
        CHECK(vm_start_send_array(vm, other, tag + 10, numbers, LEN - (size_t)tag, VM_DOUBLE,
                                  &open[2 * tag + 1]) == VM_OK);
    }
    CHECK(vm_wait_all(vm, open, 2 * TAGS + 1, messages) == VM_OK);
    for (int i = 0; i < 2 * TAGS + 1; i++) {
        CHECK(open[i] == NULL);
        CHECK((messages[i] != NULL) == (i % 2 == 0 && i < 2 * TAGS));
        if (messages[i] == NULL)
            continue;
        CHECK(vm_message_tag(messages[i]) == i / 2 + 1010);
        CHECK(vm_message_count(messages[i], VM_DOUBLE) == LEN - i / 2);
        CHECK(vm_message_read(messages[i], numbers, (size_t)(LEN - i / 2), VM_DOUBLE) == VM_OK);
        CHECK(numbers[LEN - 10] == LEN - 10);
        vm_message_free(messages[i]);
    }

    size_t index = 77;
    CHECK(vm_wait_any(vm, open, 2 * TAGS + 1, &index, &message) == VM_NOTHING);
    CHECK(vm_start_recv(vm, other, 1021, &open[1]) == VM_OK);
    CHECK(vm_start_recv(vm, other, 1022, &open[2]) == VM_OK);
    CHECK(vm_test(&open[1], &message) == VM_NOTHING && open[1] != NULL && message == NULL);
    CHECK(vm_start_send(vm, other, 22, "22", 2, &one) == VM_OK);
    CHECK(vm_wait(&one, NULL) == VM_OK && one == NULL);
    CHECK(vm_wait(&one, NULL) == VM_EINVAL);
    CHECK(vm_wait_any(vm, open, 3, &index, &message) == VM_OK);
    CHECK(index == 2 && open[2] == NULL && open[1] != NULL && vm_message_size(message) == 2);
    CHECK(vm_message_free(message) == VM_OK);
    /* One request twice in the list: nothing is lost. */
    vm_request *twice[2] = {open[1], open[1]};
    CHECK(vm_wait_all(vm, twice, 2, NULL) == VM_EINVAL);
    CHECK(vm_start_send(vm, other, 21, NULL, 0, &one) == VM_OK);
    CHECK(vm_cancel(&one) == VM_OK && one == NULL);
    CHECK(vm_wait(&open[1], &message) == VM_OK && vm_message_size(message) == 0);
    CHECK(vm_message_free(message) == VM_OK);
    CHECK(vm_start_recv(vm, other, 1, &one) == VM_OK);
    CHECK(vm_cancel(&one) == VM_OK && vm_cancel(&one) == VM_OK);
}

static void ids_and_hosts(vm_task *vm, vm_tid other)
{
    char text[VM_TID_SIZE];
    vm_tid read, siblings[2];
    size_t count;
    CHECK(vm_tid_format(vm, other, text, sizeof text) == VM_OK && text[0] == 't');
    CHECK(vm_tid_parse(vm, text, &read) == VM_OK && vm_tid_equal(read, other) == 1);
    CHECK(vm_tid_format(vm, other, text, 2) == VM_ESPACE);
    CHECK(vm_tid_parse(vm, "seventeen", &read) == VM_EINVAL && read == VM_TID_NONE);
    CHECK(vm_index(vm) == 0 && vm_app(vm) == vm_mytid(vm));
    CHECK(vm_siblings(vm, siblings, 2, &count) == VM_OK && count == 1);
    CHECK(siblings[0] == vm_mytid(vm));

    vm_host_info hosts[2];
    CHECK(vm_hosts(vm, hosts, 1, &count) == VM_ESPACE && count == 2);
    CHECK(vm_hosts(vm, hosts, 2, &count) == VM_OK && count == 2);
    CHECK(hosts[0].id == 1 && strcmp(hosts[0].name, "n1") == 0 && hosts[1].id == 2);
    CHECK(strcmp(hosts[1].name, "n2") == 0 && hosts[1].cpus > 0 && hosts[1].tasks_max > 0);
    CHECK(strchr(hosts[0].address, ':') != NULL && hosts[0].arch[0] != 0);
    CHECK(vm_host(vm) == 1);
}

static void moves(vm_task *vm, vm_tid other)
{
    vm_move_report moved;
    vm_drain_report drained;
    vm_checkpoint_report saved_report;
    int32_t counts[2];
    vm_event event;
    /* It is movable once it has registered its callbacks, which an answer shows. */
    CHECK(vm_send(vm, other, WORD, NULL, 0) == VM_OK);
    CHECK(vm_recv_into(vm, other, WORD + 1000, NULL, 0, 60000, NULL) == VM_OK);
    CHECK(vm_can_move(vm, other) == VM_OK);
    CHECK(vm_move(vm, other, "n1", &moved) == VM_OK);
    CHECK(moved.from == 2 && moved.to == 1 && moved.bytes > 0 && moved.total_us > 0);
    CHECK(vm_move(vm, other, "n1", &moved) == VM_EREFUSED);
    CHECK(vm_move(vm, other, "nowhere", &moved) == VM_ENOHOST);
    CHECK(vm_move(vm, other, "h2", NULL) == VM_OK);
    int code = vm_checkpoint(vm, &saved_report);
    CHECK(code == VM_OK && saved_report.tasks == 2 && saved_report.bytes > 0);
    CHECK(vm_drain(vm, "n2", &drained) == VM_OK);
    CHECK(drained.host == 2 && drained.moved == 1 && drained.refused == 0);
    CHECK(vm_send(vm, other, BACK, NULL, 0) == VM_OK);
    CHECK(vm_recv_array(vm, other, BACK, counts, 2, VM_INT32, 60000, NULL) == VM_OK);
    CHECK(counts[0] == 1 && counts[1] == 3);
    CHECK(vm_suspend(vm, other, -1, NULL) < 0 && vm_resume(vm, other) < 0);

    CHECK(vm_watch_hosts(vm) == VM_OK && vm_unwatch_hosts(vm) == VM_OK);
    CHECK(vm_watch_task(vm, other) == VM_OK && vm_unwatch_task(vm, other) == VM_OK);
    CHECK(vm_watch_task(vm, other) == VM_OK);
    CHECK(vm_signal(vm, other, SIGTERM) == VM_OK);
    CHECK(vm_recv_event(vm, 60000, &event) == VM_OK);
    CHECK(event.tid == other && event.end == VM_END_SIGNAL && event.status == SIGTERM);
    CHECK(vm_recv_event(vm, 1, &event) == VM_NOTHING && event.kind == VM_EVENT_NONE);
    CHECK(vm_kill(vm, other) == VM_ENOTASK);
}

int main(int argc, char **argv)
{
    vm_task *vm;
    vm_spawn *spawn;
    vm_tid other;
    (void)argc;
    CHECK(vm_init(&vm) == VM_OK);
    if (vm_parent(vm) != VM_TID_NONE)
        return echo(vm, vm_parent(vm));
    CHECK(vm_spawn_new(argv[0], &spawn) == VM_OK);
    CHECK(vm_spawn_on(spawn, "n2") == VM_OK && vm_spawn_dir(spawn, "/tmp") == VM_OK);
    CHECK(vm_spawn_start(vm, spawn, &other, 1, NULL) == VM_OK);
    CHECK(vm_spawn_free(spawn) == VM_OK);
    requests(vm, other);
    contexts(vm);
    ids_and_hosts(vm, other);
    moves(vm, other);
    printf("all requests are right\n");
    return 0;
}
