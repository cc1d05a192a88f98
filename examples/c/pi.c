/* pi - computes pi with tasks on all hosts, and moves one of them in the middle.
 *
 *   cc -O2 -o pi pi.c $(pkg-config --cflags --libs vm)
 *   vm run ./pi 4
 *
 * The master starts workers and gives each a piece of the integral of 4 / (1 + x^2) from 0 to 1.
 * A worker that answers gets the next piece. When half of the pieces are done, the master moves a worker
 * to another host, if there is one; no message is lost, and the worker does not notice. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <vm.h>

enum { WORK = 1, RESULT = 2, END = 3 };
enum { PIECES = 200, POINTS = 100000 };

/* Ends the program with the words of the library if a call failed. */
static void check(int code, const char *what)
{
    if (code < 0) {
        fprintf(stderr, "pi: %s: %s: %s\n", what, vm_strerror(code), vm_last_error());
        exit(1);
    }
}

static void show_move(vm_task *vm, vm_tid worker)
{
    vm_move_report report;
    char name[VM_TID_SIZE];
    vm_tid_format(vm, worker, name, sizeof name);
    if (vm_move(vm, worker, NULL, &report) == VM_OK)
        printf("%s moved from h%" PRIu32 " to h%" PRIu32 ", and stood for %" PRIu64 " us\n", name,
               report.from, report.to, report.freeze_us);
    else
        printf("%s was not moved: %s\n", name, vm_last_error());
}

static int master(vm_task *vm, const char *program, uint32_t count)
{
    vm_tid *workers = calloc(count, sizeof *workers);
    if (workers == NULL)
        return 1;
    check(vm_start_tasks(vm, program, NULL, count, workers), "starting the workers");

    int32_t next = 0;
    for (uint32_t i = 0; i < count && next < PIECES; i++, next++)
        check(vm_send_array(vm, workers[i], WORK, &next, 1, VM_INT32), "sending");
    double pi = 0;
    for (int done = 0; done < PIECES; done++) {
        double part;
        vm_envelope result;
        check(vm_recv_array(vm, VM_ANY_SOURCE, RESULT, &part, 1, VM_DOUBLE, VM_FOREVER, &result),
              "receiving a result");
        pi += part;
        if (next < PIECES) {
            check(vm_send_array(vm, result.from, WORK, &next, 1, VM_INT32), "sending");
            next++;
        }
        if (done == PIECES / 2)
            show_move(vm, workers[0]);
    }
    check(vm_multicast(vm, workers, count, END, NULL, 0), "ending the workers");
    printf("pi is %.10f\n", pi);
    free(workers);
    return 0;
}

static int worker(vm_task *vm, vm_tid parent)
{
    for (;;) {
        vm_message *message;
        check(vm_recv(vm, parent, VM_ANY_TAG, &message), "receiving work");
        if (vm_message_tag(message) == END) {
            vm_message_free(message);
            return 0;
        }
        int32_t piece;
        check(vm_message_read(message, &piece, 1, VM_INT32), "reading work");
        vm_message_free(message);

        const double step = 1.0 / ((double)PIECES * POINTS);
        double sum = 0;
        for (int64_t i = (int64_t)piece * POINTS; i < (int64_t)(piece + 1) * POINTS; i++) {
            double x = ((double)i + 0.5) * step;
            sum += 4.0 / (1.0 + x * x);
        }
        sum *= step;
        check(vm_send_array(vm, parent, RESULT, &sum, 1, VM_DOUBLE), "sending a result");
    }
}

int main(int argc, char **argv)
{
    vm_task *vm;
    check(vm_init(&vm), "becoming a task");
    vm_tid parent = vm_parent(vm);
    if (parent != VM_TID_NONE)
        return worker(vm, parent);
    return master(vm, argv[0], argc > 1 ? (uint32_t)atoi(argv[1]) : 4);
}
