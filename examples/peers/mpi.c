/* The works that vmbench compares with, written against plain MPI.
 *
 *     mpicc -O2 -o works mpi.c
 *     mpirun -n TASKS works WORK BYTES COUNT
 *
 * Does WORK once to warm up, with a tenth of the operations, and once with COUNT operations. Rank 0
 * prints one line: result WORK TASKS BYTES COUNT MICROSECONDS, the last for each operation.
 *
 * BYTES is the size of a message; of the part for each task in all-to-all. The barrier ignores it.
 * The tasks of vmbench do the same in peers/tasks.rs. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 1 };

static int rank, tasks;
/* Each has room for BYTES bytes for each task. */
static char *out, *in;

/* Rank 0 sends a message to rank 1 and gets it back. */
static void round_trip(int bytes, long count)
{
    int partner = 1 - rank;
    for (long i = 0; i < count; i++) {
        if (rank == 0)
            MPI_Send(out, bytes, MPI_BYTE, partner, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, bytes, MPI_BYTE, partner, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(in, bytes, MPI_BYTE, partner, TAG, MPI_COMM_WORLD);
    }
}

/* Rank 0 sends messages to rank 1, which replies once, to the last. */
static void rate(int bytes, long count)
{
    if (rank == 0) {
        for (long i = 0; i < count; i++)
            MPI_Send(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        for (long i = 0; i < count; i++)
            MPI_Recv(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(in, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
}

static void barrier(int bytes, long count)
{
    (void)bytes;
    for (long i = 0; i < count; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

/* One barrier at the end: the time counts until every task has all messages. */
static void broadcast(int bytes, long count)
{
    for (long i = 0; i < count; i++)
        MPI_Bcast(out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The sum of doubles. */
static void allreduce(int bytes, long count)
{
    int numbers = bytes / (int)sizeof(double);
    for (long i = 0; i < count; i++)
        MPI_Allreduce(out, in, numbers, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* A token goes through all ranks and returns to rank 0. */
static void ring(int bytes, long count)
{
    int next = (rank + 1) % tasks, before = (rank + tasks - 1) % tasks;
    for (long i = 0; i < count; i++) {
        if (rank == 0)
            MPI_Send(out, bytes, MPI_BYTE, next, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, bytes, MPI_BYTE, before, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank != 0)
            MPI_Send(in, bytes, MPI_BYTE, next, TAG, MPI_COMM_WORLD);
    }
}

static void all_to_all(int bytes, long count)
{
    for (long i = 0; i < count; i++)
        MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    void (*run)(int bytes, long count);
    /* The least number of tasks, and the most; 0: no bound. */
    int least, most;
} works[] = {
    {"round-trip", round_trip, 2, 2},
    {"rate", rate, 2, 2},
    {"barrier", barrier, 1, 0},
    {"broadcast", broadcast, 1, 0},
    {"allreduce", allreduce, 1, 0},
    {"ring", ring, 2, 0},
    {"all-to-all", all_to_all, 1, 0},
};

static void fail(const char *what)
{
    fprintf(stderr, "%s; usage: works WORK BYTES COUNT\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static void measure(size_t work, int bytes, long count)
{
    if (tasks < works[work].least || (works[work].most && tasks > works[work].most))
        fail("the number of tasks does not fit the work");
    works[work].run(bytes, count / 10 + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    works[work].run(bytes, count);
    double micros = 1e6 * (MPI_Wtime() - begin) / (double)count;
    if (rank == 0) {
        printf("result %s %d %d %ld %.4f\n", works[work].name, tasks, bytes, count, micros);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &tasks);
    int bytes = argc == 4 ? atoi(argv[2]) : -1;
    long count = argc == 4 ? atol(argv[3]) : 0;
    if (bytes < 0 || count < 1)
        fail("BYTES or COUNT is missing");
    size_t room = (size_t)bytes * (size_t)tasks + 1;
    out = calloc(room, 1);
    in = calloc(room, 1);
    if (!out || !in)
        fail("not enough memory");
    /* The pages exist before the measurement. */
    memset(out, 0, room);
    memset(in, 0, room);
    size_t work = 0, known = sizeof works / sizeof works[0];
    while (work < known && strcmp(works[work].name, argv[1]) != 0)
        work++;
    if (work == known)
        fail("unknown WORK");
    measure(work, bytes, count);
    MPI_Finalize();
    return 0;
}
