/* A caller and its callees, which exchange numbered messages until the caller's standard input
 * has a line or ends. Each side checks every message. A callee keeps a message, an array and a description of
 * tasks from its beginning, and checks them at its end: moves and restarts must not change them.
 *
 * Usage: caller HOST... - one callee on each host. */
#include "check.h"
#include <poll.h>

enum { FIRST = 7, NUMBERS = 8, ANSWER = 9, END = 10, LAST = 11 };
enum { LEN = 1000, KEPT = 100000 };

static int callee(vm_task *vm, vm_tid caller, int argc, char **argv)
{
    vm_message *first, *message;
    vm_spawn *spawn;
    CHECK(argc == 3 && strcmp(argv[1], "callee") == 0 && strcmp(argv[2], "two words") == 0);
    CHECK(getenv("C_LIBRARY") != NULL && strcmp(getenv("C_LIBRARY"), "yes") == 0);
    CHECK(vm_spawn_new("later", &spawn) == VM_OK);
    CHECK(vm_recv(vm, caller, FIRST, &first) == VM_OK);
    double *kept = malloc(KEPT * sizeof *kept);
    CHECK(kept != NULL);
    for (int i = 0; i < KEPT; i++)
        kept[i] = i * 0.5;

    for (int64_t number = 0;; number++) {
        CHECK(vm_recv(vm, caller, VM_ANY_TAG, &message) == VM_OK);
        CHECK(vm_message_from(message) == caller);
        if (vm_message_tag(message) == END) {
            CHECK(vm_message_size(message) == 0);
            break;
        }
        int64_t numbers[LEN];
        CHECK(vm_message_tag(message) == NUMBERS);
        CHECK(vm_message_count(message, VM_INT64) == LEN);
        CHECK(vm_message_read(message, numbers, LEN, VM_INT64) == VM_OK);
        CHECK(vm_message_free(message) == VM_OK);
        for (int i = 0; i < LEN; i++)
            CHECK(numbers[i] == number + i);
        CHECK(vm_send_array(vm, caller, ANSWER, &number, 1, VM_INT64) == VM_OK);
    }
    CHECK(vm_message_size(first) == 5 && memcmp(vm_message_data(first), "first", 5) == 0);
    for (int i = 0; i < KEPT; i++)
        CHECK(kept[i] == i * 0.5);
    CHECK(vm_spawn_free(spawn) == VM_OK);
    CHECK(vm_message_free(first) == VM_OK);
    CHECK(vm_message_free(message) == VM_OK);
    CHECK(vm_send(vm, caller, LAST, "good", 4) == VM_OK);
    return 0;
}

/* Whether a line has come, or the end of the input, as after a restart; at once. */
static int is_told(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) == 1;
}

static int caller(vm_task *vm, const char *program, int hosts, char **host)
{
    vm_tid callees[16];
    size_t started = 0;
    vm_spawn *spawn;
    CHECK(hosts > 0 && hosts <= 16);
    CHECK(vm_spawn_new(program, &spawn) == VM_OK);
    CHECK(vm_spawn_arg(spawn, "callee") == VM_OK);
    CHECK(vm_spawn_arg(spawn, "two words") == VM_OK);
    CHECK(vm_spawn_env(spawn, "C_LIBRARY", "yes") == VM_OK);
    CHECK(vm_spawn_count(spawn, (uint32_t)hosts) == VM_OK);
    for (int i = 0; i < hosts; i++)
        CHECK(vm_spawn_on(spawn, host[i]) == VM_OK);
    CHECK(vm_spawn_start(vm, spawn, callees, 0, &started) == VM_ESPACE);
    CHECK(vm_spawn_start(vm, spawn, callees, 16, &started) == VM_OK);
    CHECK(started == (size_t)hosts);
    CHECK(vm_spawn_free(spawn) == VM_OK);
    for (int i = 0; i < hosts; i++)
        CHECK(vm_watch_task(vm, callees[i]) == VM_OK);
    CHECK(vm_multicast(vm, callees, started, FIRST, "first", 5) == VM_OK);

    int64_t numbers[LEN], answer, number = 0;
    vm_envelope envelope;
    for (; number < 10 || !is_told(); number++) {
        for (int i = 0; i < LEN; i++)
            numbers[i] = number + i;
        CHECK(vm_multicast_array(vm, callees, started, NUMBERS, numbers, LEN, VM_INT64) == VM_OK);
        for (int i = 0; i < hosts; i++) {
            CHECK(vm_recv_array(vm, callees[i], ANSWER, &answer, 1, VM_INT64, VM_FOREVER,
                                &envelope) == VM_OK);
            CHECK(envelope.from == callees[i] && envelope.count == 1 && envelope.size == 8);
            CHECK(answer == number);
        }
        if (number == 0) {
            printf("it goes\n");
            fflush(stdout);
        }
    }

    CHECK(vm_multicast(vm, callees, started, END, NULL, 0) == VM_OK);
    int lasts = 0, ends = 0;
    while (ends < hosts) {
        vm_message *message;
        vm_event event;
        CHECK(vm_next(vm, VM_ANY_SOURCE, LAST, 60000, &message, &event) == VM_OK);
        if (message != NULL) {
            CHECK(vm_message_size(message) == 4 && event.kind == VM_EVENT_NONE);
            vm_message_free(message);
            lasts++;
        } else {
            CHECK(event.kind == VM_EVENT_TASK_ENDED);
            CHECK(event.end == VM_END_LEFT && event.status == 0);
            ends++;
        }
    }
    CHECK(lasts == hosts);
    CHECK(vm_try_recv(vm, VM_ANY_SOURCE, VM_ANY_TAG, &(vm_message *){NULL}) == VM_NOTHING);
    CHECK(vm_probe(vm, VM_ANY_SOURCE, VM_ANY_TAG, NULL) == VM_NOTHING);
    CHECK(vm_recv(vm, callees[0], LAST, &(vm_message *){NULL}) == VM_EENDED);
    printf("%" PRId64 " rounds: none lost, doubled or out of order\n", number);
    CHECK(vm_exit(vm, 0) == VM_OK);
    CHECK(vm_send(vm, callees[0], LAST, NULL, 0) == VM_ELEFT);
    CHECK(vm_task_free(vm) == VM_OK);
    return 0;
}

int main(int argc, char **argv)
{
    vm_task *vm;
    CHECK(vm_init(&vm) == VM_OK);
    CHECK(vm_init(&(vm_task *){NULL}) == VM_ETWICE);
    CHECK(vm_mytid(vm) != VM_TID_NONE);
    vm_tid parent = vm_parent(vm);
    if (parent != VM_TID_NONE)
        return callee(vm, parent, argc, argv);
    return caller(vm, argv[0], argc - 1, argv + 1);
}
