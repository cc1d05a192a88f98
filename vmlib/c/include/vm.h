/* vm.h - the task library of the virtual parallel machine, for C and C++.
 *
 * Compile with: cc program.c $(pkg-config --cflags --libs vm)
 *
 * A program that calls vm_init is a task of a machine that may have many hosts. It starts other tasks
 * anywhere in it, sends them messages, and is told when one ends. Any task can be moved to another host
 * at any moment, or saved and brought back, without its knowledge.
 *
 * Codes. Functions that return an int return VM_OK, another status that is not negative, or a negative
 * code of an error. vm_strerror says what a code means; vm_last_error says what failed in the last failed
 * call of this thread, and what to do. Every function may return VM_EINVAL (for NULL where it is not
 * allowed, a handle that was freed or is of another type, a bad length) and VM_EINTERNAL (a fault of the
 * library). Every function that has a vm_task may also return VM_ELEFT, VM_ELINK and VM_EINCALLBACK. The
 * comment of each function lists its other errors.
 *
 * Handles. Variables of the types vm_task *, vm_message *, vm_spawn *, vm_request *, vm_group * and
 * vm_blocks * are handles. They are no addresses:
 * do not read memory through them. A function that makes a handle stores NULL if it fails. A
 * handle may be used in every thread. Free it with the function of its type; to free NULL does nothing. A
 * moved or restored task has its handles as before.
 *
 * Texts are UTF-8 and end with a zero byte. Sizes are in bytes, counts in elements, times in
 * milliseconds; a negative time is without end.
 */
#ifndef VM_H
#define VM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Statuses and errors */

/* The call has done what it says. */
#define VM_OK 0
/* There is no such message or event, or none has come in time. Not an error. */
#define VM_NOTHING 1
/* This process was made of the checkpoint that the call asked for. Not an error. */
#define VM_RESTORED 2

#define VM_EINVAL (-1)        /* an argument is not valid */
#define VM_EINTERNAL (-2)     /* the library has a fault: please report it */
#define VM_ELEFT (-3)         /* this task has left the machine, or this process is a forked child */
#define VM_EINCALLBACK (-4)   /* a callback around a save may not make this call */
#define VM_ELINK (-5)         /* the connection to the daemon failed */
#define VM_ENODAEMON (-6)     /* no daemon answers on this host */
#define VM_ETWICE (-7)        /* this process is a task already */
#define VM_ESILENT (-8)       /* the daemon did not answer in time */
#define VM_EPROTOCOL (-9)     /* program and daemon are of different releases */
#define VM_ESYSTEM (-10)      /* a call of the operating system failed */
#define VM_EREFUSED (-11)     /* the machine refuses the request */
#define VM_ETRYAGAIN (-12)    /* not possible now, for a reason that passes */
#define VM_ELIMIT (-13)       /* a limit is reached */
#define VM_ENOHOST (-14)      /* there is no such host */
#define VM_EHOSTLOST (-15)    /* the host was lost */
#define VM_ENOTASK (-16)      /* there is no such task */
#define VM_EENDED (-17)       /* the task of which a message is expected has ended */
#define VM_ENOPROGRAM (-18)   /* the program or its folder was not found */
#define VM_ENOEXEC (-19)      /* the host cannot execute the program */
#define VM_EPARTLY (-20)      /* some of the tasks were not started */
#define VM_ETOOLONG (-21)     /* a message is longer than 1 GiB */
#define VM_ESPACE (-22)       /* there is not enough room for the result */
#define VM_ETYPE (-23)        /* the message is not of that type or length */
#define VM_EINBOXFULL (-24)   /* the inbox is full: receive something first */
#define VM_ENOTOPEN (-25)     /* the result of the request was returned before */
#define VM_EUNSENT (-26)      /* started messages were not sent */
#define VM_EINUSE (-27)       /* another thread is in a call with the handle */
#define VM_ENOGROUP (-28)     /* there is no such group */
#define VM_ENOTMEMBER (-29)   /* this task is no member of the group */
#define VM_ENOINSTANCE (-30)  /* the group has no member of that instance */
#define VM_EVERSION (-31)     /* the group has changed: refresh the handle */
#define VM_EMEMBERLEFT (-32)  /* a member has left the group */
#define VM_EOUTOFSTEP (-33)   /* a member makes another collective call */
#define VM_EMEMBERFAILED (-34) /* the collective call failed at a member */
#define VM_ESHAPE (-35)       /* the values do not fit the collective call */
#define VM_EINTERRUPTED (-36) /* the program has interrupted the call: vm_interrupt_when */

/* Types */

/* This process as a task of the machine. */
typedef struct vm_task vm_task;
/* A message that was received. */
typedef struct vm_message vm_message;
/* A description of tasks to be started. */
typedef struct vm_spawn vm_spawn;
/* A send or receive that was started. */
typedef struct vm_request vm_request;
/* A group that this task is a member of. */
typedef struct vm_group vm_group;
/* A list of numbers for each member of a group. */
typedef struct vm_blocks vm_blocks;

/* The id of a task. Two ids are equal (==) if they are those of one task. An id stays as it is when
 * the task moves, and is never given to another task. vm_tid_format makes a text of it. */
typedef uint64_t vm_tid;

/* No task. */
#define VM_TID_NONE ((vm_tid)0)
/* Selects the messages of every sender. */
#define VM_ANY_SOURCE UINT64_MAX
/* Selects messages with every tag. No message may be sent with it. */
#define VM_ANY_TAG INT32_MIN
/* A time without end. */
#define VM_FOREVER (-1)
/* Bytes of the longest text of an id, with the zero at its end. */
#define VM_TID_SIZE 32
/* Bytes of a name in a struct, with the zero at its end. */
#define VM_NAME_SIZE 256

/* A type of numbers. An array of numbers arrives as it was sent on every host, whatever the order of
 * bytes there. */
typedef int32_t vm_type;
#define VM_INT8 1
#define VM_UINT8 2
#define VM_INT16 3
#define VM_UINT16 4
#define VM_INT32 5
#define VM_UINT32 6
#define VM_INT64 7
#define VM_UINT64 8
#define VM_FLOAT 9
#define VM_DOUBLE 10

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
/* The type of the numbers of an array, so that it cannot differ from it:
 * vm_send_array(vm, to, tag, x, n, VM_TYPE_OF(x)). In C11 and later. */
#define VM_TYPE_OF(array)                                                                          \
    _Generic((array)[0], int8_t: VM_INT8, uint8_t: VM_UINT8, int16_t: VM_INT16,                    \
             uint16_t: VM_UINT16, int32_t: VM_INT32, uint32_t: VM_UINT32, int64_t: VM_INT64,       \
             uint64_t: VM_UINT64, float: VM_FLOAT, double: VM_DOUBLE)
#endif

/* All of a message but its content. */
typedef struct vm_envelope {
    vm_tid from;      /* the sender */
    uint64_t size;    /* length in bytes */
    uint64_t count;   /* length in elements of the type that was asked for */
    int32_t tag;      /* the tag that the sender gave it */
    int32_t reserved; /* 0 */
} vm_envelope;

/* A living host. */
typedef struct vm_host_info {
    uint32_t id;                /* its number: 3 for h3 */
    uint32_t cpus;              /* number of its cores */
    uint32_t tasks;             /* number of living tasks on it */
    uint32_t tasks_max;         /* most tasks that it takes */
    char name[VM_NAME_SIZE];    /* its name */
    char address[VM_NAME_SIZE]; /* address and port at which other daemons reach it */
    char arch[16];              /* x86_64 or aarch64 */
} vm_host_info;

/* Kinds of events. */
#define VM_EVENT_NONE 0
#define VM_EVENT_TASK_ENDED 1
#define VM_EVENT_HOST_ADDED 2
#define VM_EVENT_HOST_DELETED 3

/* Ways in which a task ends. */
#define VM_END_LEFT 1        /* it left in order; status: what it said, or its exit status */
#define VM_END_CODE 2        /* its process exited without leaving; status: the exit status */
#define VM_END_SIGNAL 3      /* a signal ended it; status: the number of the signal */
#define VM_END_NOT_STARTED 4 /* its program could not be started */
#define VM_END_HOST_LOST 5   /* its host was lost, or left */
#define VM_END_SUSPENDED 6   /* its application was suspended */
#define VM_END_ROLLED_BACK 7 /* its application went back to a checkpoint */
#define VM_END_UNKNOWN 8     /* there is no such task, or its end was forgotten */

/* Something that this task watches has happened. */
typedef struct vm_event {
    int32_t kind;            /* VM_EVENT_... */
    int32_t end;             /* of an ended task: VM_END_... */
    int32_t status;          /* of an ended task: see VM_END_... */
    uint32_t host;           /* the number of the host that was added or deleted */
    vm_tid tid;              /* the ended task */
    char name[VM_NAME_SIZE]; /* the name of the host that was added or deleted */
} vm_event;

/* An operation that combines the values of all members of a group, one by one by their place. Sums and
 * products of integers wrap around. The smallest and greatest of floating-point numbers is NaN only if all
 * are. The operations on bits are for integers. */
typedef int32_t vm_op;
#define VM_SUM 1
#define VM_PRODUCT 2
#define VM_MIN 3
#define VM_MAX 4
#define VM_AND 5
#define VM_OR 6
#define VM_XOR 7

/* An operation of the program's own: sets *result to what *one and *other give. All three are numbers of the
 * type of the call. The operation must be associative, and make no call of this library. */
typedef void (*vm_function)(const void *one, const void *other, void *result, void *context);

/* In which order an operation of the program's own may be given its operands: in any, if *one and *other
 * give what *other and *one give; or by the instances of the members that they are of. */
#define VM_ANY_ORDER 0
#define VM_BY_INSTANCE 1

/* A member of a group. */
typedef struct vm_member {
    vm_tid tid;        /* the task */
    uint32_t instance; /* its number in the group */
    uint32_t reserved; /* 0 */
} vm_member;

/* Whether a call that waits is to be left: see vm_interrupt_when. */
typedef int (*vm_question)(void);

/* The functions that are called around a save: see vm_around_saves. */
typedef int (*vm_before_save)(void *context);
typedef void (*vm_after_save)(void *context);

/* How a move went. Times in microseconds. */
typedef struct vm_move_report {
    uint32_t from;      /* the number of the host that the task left */
    uint32_t to;        /* the number of the host where it runs now */
    uint64_t bytes;     /* bytes of its image */
    uint64_t copied;    /* bytes of these that were sent while it ran */
    uint64_t freeze_us; /* how long it stood */
    uint64_t total_us;  /* from the request to its first instruction on the new host */
} vm_move_report;

/* How a drain went. */
typedef struct vm_drain_report {
    uint32_t host;     /* the number of the host */
    uint32_t moved;    /* number of tasks that left */
    uint32_t refused;  /* number of tasks that stayed */
    uint32_t saved;    /* number of applications that were suspended, for a task could not leave */
    uint64_t total_us; /* from the request to the end of the last move; microseconds */
} vm_drain_report;

/* A checkpoint that was made. Times in microseconds. */
typedef struct vm_checkpoint_report {
    uint32_t generation; /* number of restarts of the application before it */
    uint32_t epoch;      /* its number in that generation */
    uint32_t tasks;      /* number of tasks in it */
    uint32_t reserved;   /* 0 */
    uint64_t bytes;      /* bytes of all images */
    uint64_t stored;     /* bytes of their files in the store */
    uint64_t freeze_us;  /* how long the task that stood longest stood */
    uint64_t total_us;   /* from the request until it was in the store */
} vm_checkpoint_report;

/* Errors in words */

/* vm_strerror - says what a status or error code means
 *
 * The text is there for ever.
 *
 * Errors: none; for a number that is no code of this library, the text says so. */
const char *vm_strerror(int code);

/* vm_last_error - says what failed in the last failed call of this thread, and what to do
 *
 * The text is there until the next call of this thread that fails. It is empty if none has failed.
 *
 * Errors: none. */
const char *vm_last_error(void);

/* Begin and end */

/* vm_init - makes this process a task of the machine
 *
 * Call it before anything else. A process that the machine has started is known to its daemon. A
 * process started from a shell becomes the master of a new application, if a daemon runs on this host; it
 * forks, if it has no other threads yet, the process that coordinates its application. A process
 * that ends in order (return from main, or exit) leaves the machine with its exit status. A child that it
 * forks is no task: calls there fail with VM_ELEFT, until it executes another program.
 *
 * Errors: VM_ENODAEMON, VM_ETWICE, VM_ESILENT, VM_EPROTOCOL, VM_EREFUSED (the daemon is not the
 * user's), VM_ESYSTEM. */
int vm_init(vm_task **vm);

/* vm_exit - leaves the machine, with this status for those who watch; the process goes on
 *
 * What was sent before is delivered. Later calls fail with VM_ELEFT.
 *
 * Errors: VM_ESILENT, VM_EUNSENT (the task has left; started messages were not sent). */
int vm_exit(vm_task *vm, int status);

/* vm_task_free - frees the handle; the process stays a task
 *
 * Errors: those of every call. */
int vm_task_free(vm_task *vm);

/* vm_interrupt_when - has the calls of this thread ask a question of the program while they wait
 *
 * A call that waits asks it about 20 times a second, and fails with VM_EINTERRUPTED when it returns another
 * number than 0: a flag that a signal handler has set, for example. A receive that was left has taken no
 * message; a message is sent as a whole or not at all; what a request to the machine asked for may still be
 * done. vm_exit is not left. Calls go on after a signal if no question is set. NULL ends the questions.
 *
 * Errors: none. */
int vm_interrupt_when(vm_question question);

/* Who and where one is */

/* vm_mytid - the id of this task
 *
 * Errors: VM_TID_NONE for a bad handle. */
vm_tid vm_mytid(vm_task *vm);

/* vm_parent - the id of the task that spawned this one; VM_TID_NONE for a master
 *
 * Errors: VM_TID_NONE for a bad handle. */
vm_tid vm_parent(vm_task *vm);

/* vm_app - the application of this task: the id of its master, which may be this task
 *
 * Errors: VM_TID_NONE for a bad handle. */
vm_tid vm_app(vm_task *vm);

/* vm_index - which of the tasks that were spawned together this one is, from 0
 *
 * Errors: those of every call. */
int64_t vm_index(vm_task *vm);

/* vm_context - makes a handle of this task in a new context
 *
 * A message belongs to one context, and a receive selects messages of one context alone, so a library that
 * has a context of its own never meets the messages of its user, whatever tags both choose. No other call
 * gets the same context. Messages that are sent and received through *other are in it; requests, groups and
 * events are the same in all. *other is to be freed with vm_task_free.
 *
 * Errors: VM_ELIMIT (the machine has given all contexts). */
int vm_context(vm_task *vm, vm_task **other);

/* vm_in_context - makes a handle of this task in a context that another task has made
 *
 * number is what vm_context_number returned there; 0 is the context in which a program begins. *other is to
 * be freed with vm_task_free.
 *
 * Errors: those of every call. */
int vm_in_context(vm_task *vm, uint32_t number, vm_task **other);

/* vm_context_number - the number of a handle's context, to be sent to other tasks; 0 for that in which a
 * program begins
 *
 * Errors: those of every call. */
int64_t vm_context_number(vm_task *vm);

/* vm_siblings - stores the ids of the tasks that were spawned together with this one
 *
 * Itself is among them, and those that have ended are, too, in the order of vm_index. tids has room for
 * so many ids; *count is set to how many there are.
 *
 * Errors: VM_ESPACE for more tasks than room; *count says how many. */
int vm_siblings(vm_task *vm, vm_tid *tids, size_t room, size_t *count);

/* vm_host - the number of the host where this task runs now: another one after it was moved
 *
 * Errors: those of every call. */
int vm_host(vm_task *vm);

/* vm_hosts - stores the living hosts of the machine
 *
 * hosts has room for so many; *count is set to how many there are.
 *
 * Errors: VM_ESPACE for more hosts than room; *count says how many. */
int vm_hosts(vm_task *vm, vm_host_info *hosts, size_t room, size_t *count);

/* Ids as text */

/* vm_tid_format - writes an id as the console shows it: t3.17
 *
 * The id of a task of another machine is written as t3.17@00beef, and VM_TID_NONE as none. VM_TID_SIZE
 * bytes are enough.
 *
 * Errors: VM_ESPACE. */
int vm_tid_format(vm_task *vm, vm_tid tid, char *text, size_t size);

/* vm_tid_parse - reads an id that vm_tid_format, the console or a user has written
 *
 * Errors: VM_EINVAL for a text that is no id. */
int vm_tid_parse(vm_task *vm, const char *text, vm_tid *tid);

/* vm_tid_equal - whether two ids are those of one task: 1, or 0 if not
 *
 * Errors: none. */
int vm_tid_equal(vm_tid one, vm_tid other);

/* Starting, ending and signalling tasks */

/* vm_start_tasks - starts so many tasks of a program, on hosts that the machine chooses
 *
 * A program without / is looked up in the program path of the host's daemon; a relative path is taken
 * from the working directory of this process, which the host must have too. args is NULL or a list of
 * arguments with NULL at its end. tids has room for count ids, and gets them in the order of vm_index.
 * The tasks are found by all others when the call returns; what is sent to them waits for them. One whose
 * process cannot be started after all ends, which vm_watch_task tells.
 *
 * Errors: VM_ENOPROGRAM, VM_ENOEXEC, VM_ELIMIT, VM_EREFUSED, VM_EPARTLY (tids has those that run; use
 * vm_spawn_start to know how many). */
int vm_start_tasks(vm_task *vm, const char *program, const char *const *args, uint32_t count,
                   vm_tid *tids);

/* vm_spawn_new - begins to describe tasks of a program: one task, where the machine likes
 *
 * Errors: those of every call. */
int vm_spawn_new(const char *program, vm_spawn **spawn);

/* vm_spawn_arg - adds an argument
 *
 * Errors: those of every call. */
int vm_spawn_arg(vm_spawn *spawn, const char *arg);

/* vm_spawn_env - adds a variable to the environment, which is otherwise that of the host's daemon
 *
 * Errors: those of every call. */
int vm_spawn_env(vm_spawn *spawn, const char *name, const char *value);

/* vm_spawn_dir - sets the working directory
 *
 * Errors: those of every call. */
int vm_spawn_dir(vm_spawn *spawn, const char *dir);

/* vm_spawn_count - sets how many tasks are started, at most 4096
 *
 * Errors: those of every call. */
int vm_spawn_count(vm_spawn *spawn, uint32_t count);

/* vm_spawn_in_context - sets the context in which the tasks begin: that of the handle which vm_init makes
 * there
 *
 * number is that of vm_context_number. Without this call they begin in context 0.
 *
 * Errors: those of every call. */
int vm_spawn_in_context(vm_spawn *spawn, uint32_t number);

/* vm_spawn_on - adds a host, by its name or number (h3), to those on which the tasks start in turn
 *
 * Errors: those of every call. */
int vm_spawn_on(vm_spawn *spawn, const char *host);

/* vm_spawn_start - starts the described tasks; see vm_start_tasks
 *
 * tids has room for so many ids. started may be NULL; *started is set to the number of tasks that run. The
 * description stays, and can be used again.
 *
 * Errors: VM_ESPACE (no task was started), VM_ENOHOST, VM_ENOPROGRAM, VM_ENOEXEC, VM_ELIMIT, VM_EREFUSED,
 * VM_EPARTLY (tids has the *started tasks that run). */
int vm_spawn_start(vm_task *vm, vm_spawn *spawn, vm_tid *tids, size_t room, size_t *started);

/* vm_spawn_free - frees a description
 *
 * Errors: those of every call. */
int vm_spawn_free(vm_spawn *spawn);

/* vm_kill - ends a task at once, with SIGKILL
 *
 * Errors: VM_ENOTASK, VM_EREFUSED, VM_EHOSTLOST. */
int vm_kill(vm_task *vm, vm_tid tid);

/* vm_signal - sends a signal to a task's process
 *
 * Errors: VM_ENOTASK, VM_EREFUSED, VM_EHOSTLOST. */
int vm_signal(vm_task *vm, vm_tid tid, int signal);

/* Sending */

/* vm_send - sends bytes to a task
 *
 * Messages from one task to another arrive once and in order. The call returns when the memory at data
 * may be used again, not when the message was received; it waits while the receiver is 1 MiB behind.
 * To a task that has ended nothing is sent, which is no error: vm_watch_task tells. A message has at
 * most 1 GiB, and any tag but VM_ANY_TAG.
 *
 * Errors: VM_ETOOLONG, VM_ENOTASK (no task can have that id), VM_EINBOXFULL. */
int vm_send(vm_task *vm, vm_tid to, int32_t tag, const void *data, size_t size);

/* vm_send_array - sends count numbers of a type to a task; see vm_send
 *
 * Errors: VM_ETOOLONG, VM_ENOTASK, VM_EINBOXFULL. */
int vm_send_array(vm_task *vm, vm_tid to, int32_t tag, const void *values, size_t count,
                  vm_type type);

/* vm_multicast - sends bytes to several tasks
 *
 * Errors: VM_ETOOLONG, VM_ENOTASK, VM_EINBOXFULL; then some of the tasks may have the message. */
int vm_multicast(vm_task *vm, const vm_tid *to, size_t to_count, int32_t tag, const void *data,
                 size_t size);

/* vm_multicast_array - sends count numbers of a type to several tasks
 *
 * Errors: VM_ETOOLONG, VM_ENOTASK, VM_EINBOXFULL; then some of the tasks may have the message. */
int vm_multicast_array(vm_task *vm, const vm_tid *to, size_t to_count, int32_t tag,
                       const void *values, size_t count, vm_type type);

/* Receiving */

/* vm_recv - receives the first message of a sender with a tag, and waits for it
 *
 * from may be VM_ANY_SOURCE, tag may be VM_ANY_TAG. Messages that are not selected wait for a later
 * call, in their order. *message is to be freed with vm_message_free.
 *
 * Errors: VM_EENDED (the sender has ended, and nothing of it is left), VM_EINBOXFULL. */
int vm_recv(vm_task *vm, vm_tid from, int32_t tag, vm_message **message);

/* vm_try_recv - receives a message if one is there
 *
 * Returns VM_NOTHING, and *message is NULL, if none is there.
 *
 * Errors: VM_EENDED, VM_EINBOXFULL. */
int vm_try_recv(vm_task *vm, vm_tid from, int32_t tag, vm_message **message);

/* vm_recv_timeout - receives a message, and waits for it no longer than a time
 *
 * Returns VM_NOTHING, and *message is NULL, if none has come.
 *
 * Errors: VM_EENDED, VM_EINBOXFULL. */
int vm_recv_timeout(vm_task *vm, vm_tid from, int32_t tag, int64_t timeout_ms,
                    vm_message **message);

/* vm_probe - looks whether a message is there, and leaves it there
 *
 * envelope may be NULL. Its count is in bytes. Returns VM_NOTHING if none is there.
 *
 * Errors: VM_EENDED. */
int vm_probe(vm_task *vm, vm_tid from, int32_t tag, vm_envelope *envelope);

/* vm_recv_into - receives a message into the first bytes of a buffer of the program
 *
 * The way with the fewest copies. envelope may be NULL. Returns VM_NOTHING if none has come in time.
 * Unless the call returns VM_OK, any byte of the buffer may have changed.
 *
 * Errors: VM_ESPACE (the message is longer than the buffer, and stays in the inbox), VM_EENDED,
 * VM_EINBOXFULL. */
int vm_recv_into(vm_task *vm, vm_tid from, int32_t tag, void *buffer, size_t room,
                 int64_t timeout_ms, vm_envelope *envelope);

/* vm_recv_array - receives numbers into an array with room for so many; see vm_recv_into
 *
 * envelope->count is set to how many came.
 *
 * Errors: VM_ESPACE and VM_ETYPE (the message is longer, or its length is no multiple of that of a number;
 * it stays in the inbox), VM_EENDED, VM_EINBOXFULL. */
int vm_recv_array(vm_task *vm, vm_tid from, int32_t tag, void *values, size_t room, vm_type type,
                  int64_t timeout_ms, vm_envelope *envelope);

/* Messages */

/* vm_message_from - the id of the sender
 *
 * Errors: VM_TID_NONE for a bad handle. */
vm_tid vm_message_from(const vm_message *message);

/* vm_message_tag - the tag that the sender gave it
 *
 * Errors: 0 for a bad handle. */
int32_t vm_message_tag(const vm_message *message);

/* vm_message_size - its length in bytes
 *
 * Errors: 0 for a bad handle. */
size_t vm_message_size(const vm_message *message);

/* vm_message_data - its bytes, which are there until the message is freed
 *
 * They may have any alignment: use vm_message_read for numbers.
 *
 * Errors: NULL for a bad handle. */
const void *vm_message_data(const vm_message *message);

/* vm_message_count - how many numbers of a type it has
 *
 * Errors: VM_ETYPE (its length is no multiple of that of a number). */
int64_t vm_message_count(const vm_message *message, vm_type type);

/* vm_message_read - copies its numbers into an array of exactly as many
 *
 * Errors: VM_ETYPE (the message has another length; the array keeps its values). */
int vm_message_read(const vm_message *message, void *values, size_t count, vm_type type);

/* vm_message_free - frees a message
 *
 * Errors: those of every call. */
int vm_message_free(vm_message *message);

/* Events */

/* vm_watch_task - asks to be told of the end of a task; at once, if it has ended already
 *
 * The event comes after the last message of that task: vm_next, vm_recv_event.
 *
 * Errors: VM_ELIMIT, VM_EINVAL (no task can have that id). */
int vm_watch_task(vm_task *vm, vm_tid tid);

/* vm_unwatch_task - asks no more to be told of the end of a task
 *
 * Errors: those of every call. */
int vm_unwatch_task(vm_task *vm, vm_tid tid);

/* vm_watch_hosts - asks to be told of hosts that are added, deleted or lost
 *
 * Errors: VM_ELIMIT. */
int vm_watch_hosts(vm_task *vm);

/* vm_unwatch_hosts - asks no more to be told of hosts
 *
 * Errors: those of every call. */
int vm_unwatch_hosts(vm_task *vm);

/* vm_recv_event - the next event, for which it waits no longer than a time
 *
 * Returns VM_NOTHING, and event->kind is VM_EVENT_NONE, if none has come.
 *
 * Errors: VM_EINBOXFULL. */
int vm_recv_event(vm_task *vm, int64_t timeout_ms, vm_event *event);

/* vm_next - the next message that is selected, or event, whichever is there first
 *
 * If a message came, *message is not NULL; else event->kind is not VM_EVENT_NONE. Returns VM_NOTHING if
 * none has come in time. Messages go before events.
 *
 * Errors: VM_EENDED, VM_EINBOXFULL. */
int vm_next(vm_task *vm, vm_tid from, int32_t tag, int64_t timeout_ms, vm_message **message,
            vm_event *event);

/* Computing while messages travel */

/* vm_start_send - starts to send bytes, and returns at once
 *
 * The memory at data may be used again when the call returns. Messages to one task arrive in the order of
 * the calls. Started sends and receives go on in every call of the library, and in no other place.
 *
 * Errors: VM_ELIMIT (too many requests are open), VM_ETOOLONG, VM_ENOTASK. */
int vm_start_send(vm_task *vm, vm_tid to, int32_t tag, const void *data, size_t size,
                  vm_request **request);

/* vm_start_send_array - starts to send count numbers of a type; see vm_start_send
 *
 * Errors: VM_ELIMIT, VM_ETOOLONG, VM_ENOTASK. */
int vm_start_send_array(vm_task *vm, vm_tid to, int32_t tag, const void *values, size_t count,
                        vm_type type, vm_request **request);

/* vm_start_recv - starts to receive the first message of a sender with a tag, and returns at once
 *
 * A message that it selects goes to no later receive.
 *
 * Errors: VM_ELIMIT. */
int vm_start_recv(vm_task *vm, vm_tid from, int32_t tag, vm_request **request);

/* vm_test - completes a request, if that can be done at once
 *
 * Then *request is NULL, and *message is that of a receive; message may be NULL if the program does not want
 * it. Returns VM_NOTHING if the request is not complete.
 *
 * Errors: VM_EENDED, VM_EINBOXFULL; the request stays open. */
int vm_test(vm_request **request, vm_message **message);

/* vm_wait - completes a request, and waits for that; see vm_test
 *
 * Errors: VM_EENDED, VM_EINBOXFULL; the request stays open. */
int vm_wait(vm_request **request, vm_message **message);

/* vm_wait_any - completes one of count requests, and waits for that
 *
 * *index is set to its place; the rest is as for vm_test. Requests that are NULL are passed over. Returns
 * VM_NOTHING if all are.
 *
 * Errors: VM_EENDED, VM_EINBOXFULL, if none is complete and one cannot be completed; all stay open. */
int vm_wait_any(vm_task *vm, vm_request **requests, size_t count, size_t *index,
                vm_message **message);

/* vm_wait_all - completes count requests, and waits for that
 *
 * All requests are NULL then. messages is NULL or has room for count messages, and gets that of each receive
 * in its place. Requests that are NULL are passed over.
 *
 * Errors: VM_EENDED, VM_EINBOXFULL; all stay open. */
int vm_wait_all(vm_task *vm, vm_request **requests, size_t count, vm_message **messages);

/* vm_cancel - frees a request, and sets *request to NULL
 *
 * The message of a receive stays in the inbox, for a later one. That of a send is delivered all the same.
 *
 * Errors: those of every call. */
int vm_cancel(vm_request **request);

/* Groups */

/* vm_join - joins the group of that name, which its first member makes
 *
 * Names have 1 to 255 bytes.
 *
 * Errors: VM_ELIMIT. */
int vm_join(vm_task *vm, const char *name, vm_group **group);

/* vm_leave - leaves the group, and frees the handle, also after an error other than VM_EINUSE
 *
 * Errors: VM_ENOTMEMBER, VM_EINUSE. */
int vm_leave(vm_task *vm, vm_group *group);

/* vm_group_free - frees the handle; this task stays a member
 *
 * Errors: those of every call. */
int vm_group_free(vm_group *group);

/* vm_group_name - writes the name of the group; VM_NAME_SIZE bytes are enough
 *
 * Errors: VM_ESPACE, VM_EINUSE. */
int vm_group_name(vm_group *group, char *name, size_t size);

/* vm_group_instance - the number of this task in the group: the lowest that was free when it joined
 *
 * Errors: VM_EINUSE. */
int64_t vm_group_instance(vm_group *group);

/* vm_group_size - how many members the group has, as far as the handle knows
 *
 * Errors: VM_EINUSE. */
int64_t vm_group_size(vm_group *group);

/* vm_group_tid - the member with that instance number
 *
 * Errors: VM_ENOINSTANCE, VM_EINUSE. */
int vm_group_tid(vm_group *group, uint32_t instance, vm_tid *tid);

/* vm_group_members - stores the members, as far as the handle knows, by instance
 *
 * members has room for so many; *count is set to how many there are.
 *
 * Errors: VM_ESPACE, VM_EINUSE. */
int vm_group_members(vm_group *group, vm_member *members, size_t room, size_t *count);

/* vm_members - stores the members of the group of that name, which this task need not be in
 *
 * members has room for so many; *count is set to how many there are.
 *
 * Errors: VM_ENOGROUP, VM_ESPACE. */
int vm_members(vm_task *vm, const char *name, vm_member *members, size_t room, size_t *count);

/* vm_refresh - brings the handle up to what the machine knows now
 *
 * Errors: VM_ENOTMEMBER, VM_EINUSE. */
int vm_refresh(vm_task *vm, vm_group *group);

/* vm_await_members - waits until the group has at least count members, and brings the handle up to that
 *
 * Errors: VM_ENOTMEMBER, VM_EINUSE. */
int vm_await_members(vm_task *vm, vm_group *group, size_t count);

/* vm_barrier - waits until every member has called this
 *
 * Afterwards the handles of all members that took part have the same version of the group.
 *
 * Errors: VM_ENOTMEMBER, VM_EVERSION, VM_EMEMBERLEFT, VM_EENDED, VM_EINUSE. */
int vm_barrier(vm_task *vm, vm_group *group);

/* Collective calls
 *
 * All members of a group make the same collective calls in the same order, with as many numbers of the
 * same type. root is the instance number of a member. If a call fails at one member, it fails at those that
 * wait for it. */

/* vm_broadcast - gives the count values of the root to all members
 *
 * Errors: VM_ENOINSTANCE, VM_ESHAPE (the root has more or fewer), VM_EENDED, VM_EMEMBERLEFT,
 * VM_EOUTOFSTEP, VM_EMEMBERFAILED, VM_EVERSION, VM_EINUSE. */
int vm_broadcast(vm_task *vm, vm_group *group, uint32_t root, void *values, size_t count,
                 vm_type type);

/* vm_broadcast_bytes - gives bytes of the root to all members, which need not know how many
 *
 * data and size are used at the root alone. *received has one block of bytes (VM_UINT8).
 *
 * Errors: VM_ETOOLONG, and those of vm_broadcast. */
int vm_broadcast_bytes(vm_task *vm, vm_group *group, uint32_t root, const void *data, size_t size,
                       vm_blocks **received);

/* vm_reduce - combines the values of all members, place by place, for the root
 *
 * result is used at the root alone, and may be values. A member that is not the root returns when its part is
 * sent.
 *
 * Errors: VM_ESHAPE (the members have unlike counts, or the type does not have the operation), and
 * those of vm_broadcast. */
int vm_reduce(vm_task *vm, vm_group *group, uint32_t root, vm_op op, const void *values,
              void *result, size_t count, vm_type type);

/* vm_reduce_by - as vm_reduce, with an operation of the program's own
 *
 * context is passed to it. order is VM_ANY_ORDER or VM_BY_INSTANCE.
 *
 * Errors: those of vm_reduce. */
int vm_reduce_by(vm_task *vm, vm_group *group, uint32_t root, vm_function function, void *context,
                 int order, const void *values, void *result, size_t count, vm_type type);

/* vm_allreduce - combines the values of all members, place by place, for all
 *
 * The result replaces the values; all members get the same bits.
 *
 * Errors: those of vm_reduce; then the values are undefined. */
int vm_allreduce(vm_task *vm, vm_group *group, vm_op op, void *values, size_t count, vm_type type);

/* vm_allreduce_by - as vm_allreduce, with an operation of the program's own; see vm_reduce_by
 *
 * Errors: those of vm_reduce. */
int vm_allreduce_by(vm_task *vm, vm_group *group, vm_function function, void *context, int order,
                    void *values, size_t count, vm_type type);

/* vm_min_with_place - the smallest value of all members at each place, and the lowest instance that has it
 *
 * The result replaces the values. instances has room for count numbers.
 *
 * Errors: those of vm_reduce. */
int vm_min_with_place(vm_task *vm, vm_group *group, void *values, uint32_t *instances, size_t count,
                      vm_type type);

/* vm_max_with_place - the greatest value of all members at each place, and the lowest instance that has it
 *
 * The result replaces the values. instances has room for count numbers.
 *
 * Errors: those of vm_reduce. */
int vm_max_with_place(vm_task *vm, vm_group *group, void *values, uint32_t *instances, size_t count,
                      vm_type type);

/* vm_scan - combines the values of the members with lower instances and this one's own
 *
 * The result replaces the values.
 *
 * Errors: those of vm_reduce. */
int vm_scan(vm_task *vm, vm_group *group, vm_op op, void *values, size_t count, vm_type type);

/* vm_scan_by - as vm_scan, with an operation of the program's own; its operands come by instance
 *
 * Errors: those of vm_reduce. */
int vm_scan_by(vm_task *vm, vm_group *group, vm_function function, void *context, void *values,
               size_t count, vm_type type);

/* vm_exclusive_scan - combines the values of the members with lower instances, without this one's own
 *
 * The result replaces the values. Returns VM_NOTHING at the lowest instance, whose values stay.
 *
 * Errors: those of vm_reduce. */
int vm_exclusive_scan(vm_task *vm, vm_group *group, vm_op op, void *values, size_t count,
                      vm_type type);

/* vm_gather - gives the count values of each member, one after the other by instance, to the root
 *
 * result is used at the root alone; it has room for so many numbers, at least count for each member.
 *
 * Errors: VM_ESPACE (the call was not made), and those of vm_reduce. */
int vm_gather(vm_task *vm, vm_group *group, uint32_t root, const void *values, size_t count,
              void *result, size_t room, vm_type type);

/* vm_gatherv - as vm_gather, with as many values as each member likes
 *
 * blocks is used at the root alone; *blocks has one block of each member, by instance.
 *
 * Errors: those of vm_broadcast. */
int vm_gatherv(vm_task *vm, vm_group *group, uint32_t root, const void *values, size_t count,
               vm_type type, vm_blocks **blocks);

/* vm_scatter - gives each member its block of count of the root's values, by instance
 *
 * values is used at the root alone, and has count for each member. result gets count values.
 *
 * Errors: those of vm_reduce. */
int vm_scatter(vm_task *vm, vm_group *group, uint32_t root, const void *values, size_t count,
               void *result, vm_type type);

/* vm_scatterv - as vm_scatter, with as many values for each member as the root likes
 *
 * values and counts are used at the root alone: one count for each member, and all values one after the
 * other. *block has one block.
 *
 * Errors: those of vm_broadcast. */
int vm_scatterv(vm_task *vm, vm_group *group, uint32_t root, const void *values,
                const size_t *counts, vm_type type, vm_blocks **block);

/* vm_allgather - gives the count values of each member, one after the other by instance, to all
 *
 * result has room for so many numbers, at least count for each member.
 *
 * Errors: VM_ESPACE (the call was not made), and those of vm_reduce. */
int vm_allgather(vm_task *vm, vm_group *group, const void *values, size_t count, void *result,
                 size_t room, vm_type type);

/* vm_allgatherv - as vm_allgather, with as many values as each member likes
 *
 * *blocks has one block of each member, by instance.
 *
 * Errors: those of vm_broadcast. */
int vm_allgatherv(vm_task *vm, vm_group *group, const void *values, size_t count, vm_type type,
                  vm_blocks **blocks);

/* vm_alltoall - gives each member its block of count of each member's values
 *
 * values and result have count numbers for each member, by instance.
 *
 * Errors: those of vm_reduce. */
int vm_alltoall(vm_task *vm, vm_group *group, const void *values, size_t count, void *result,
                vm_type type);

/* vm_alltoallv - as vm_alltoall, with as many values for each member as each likes
 *
 * counts has one number for each member; values has all of them one after the other. *blocks has one
 * block of each member, by instance.
 *
 * Errors: those of vm_broadcast. */
int vm_alltoallv(vm_task *vm, vm_group *group, const void *values, const size_t *counts,
                 vm_type type, vm_blocks **blocks);

/* vm_blocks_count - how many blocks there are
 *
 * Errors: those of every call. */
int64_t vm_blocks_count(const vm_blocks *blocks);

/* vm_blocks_get - where the numbers of the block of that index (from 0) are, and how many
 *
 * They are of the type of the call, aligned for it, and there until the blocks are freed.
 *
 * Errors: those of every call. */
int vm_blocks_get(const vm_blocks *blocks, size_t index, const void **values, size_t *count);

/* vm_blocks_free - frees blocks
 *
 * Errors: those of every call. */
int vm_blocks_free(vm_blocks *blocks);

/* Moving */

/* vm_move - moves a task, which may be this one, to another host while all others run
 *
 * host is the name or number (h3) of the host; NULL: the machine chooses one. report may be NULL. A task
 * that moves itself returns from this call on the new host.
 *
 * Errors: VM_EREFUSED (the task cannot be moved: vm_last_error has the reason), VM_ENOTASK, VM_ENOHOST,
 * VM_ELIMIT, VM_EHOSTLOST, VM_ESYSTEM; the task runs on where it was. */
int vm_move(vm_task *vm, vm_tid tid, const char *host, vm_move_report *report);

/* vm_can_move - whether a task can be moved
 *
 * Errors: VM_EREFUSED (it cannot: vm_last_error has the reasons, one on each line), VM_ENOTASK. */
int vm_can_move(vm_task *vm, vm_tid tid);

/* vm_drain - has all tasks of a host move to others, also this one if it is there
 *
 * The host takes no more tasks until the command "vm drain --undo" or its end. report may be NULL.
 *
 * Errors: VM_EREFUSED (no other host takes tasks, or the drain was taken back), VM_ENOHOST,
 * VM_EHOSTLOST. */
int vm_drain(vm_task *vm, const char *host, vm_drain_report *report);

/* Checkpoints */

/* vm_checkpoint - saves all tasks of this application together
 *
 * Returns VM_OK when the checkpoint is in the store. Like fork, it may return more than once: with
 * VM_RESTORED in the process that is made of the checkpoint when the application is brought back.
 * report may be NULL.
 *
 * Errors: VM_EREFUSED (a task cannot be saved, or another checkpoint is just being made), VM_ESYSTEM;
 * the application runs on. */
int vm_checkpoint(vm_task *vm, vm_checkpoint_report *report);

/* vm_suspend - suspends the application of that master: it is saved, and ends with that
 *
 * The machine remembers it for that time, and without end if that is negative. If it is the task's own
 * application, the call returns only when it was resumed, with VM_RESTORED, or with an error. report may be
 * NULL.
 *
 * Errors: VM_EREFUSED, VM_ELIMIT, VM_ENOTASK, VM_ESYSTEM; the application runs on. */
int vm_suspend(vm_task *vm, vm_tid app, int64_t time_ms, vm_checkpoint_report *report);

/* vm_resume - resumes an application that is suspended; returns when all its tasks run
 *
 * Errors: VM_EREFUSED (it is not suspended), VM_ELIMIT, VM_ESYSTEM; it stays suspended. */
int vm_resume(vm_task *vm, vm_tid app);

/* vm_around_saves - has functions called around each save of this task: for a move, a checkpoint, a suspend
 *
 * before_save lets go of what cannot be saved, a socket of the program's own for example, and returns 0, or
 * another number if there must be no save now. It makes no call of this library. after_save is
 * called when the task goes on in the same process, after_resume when it goes on in a new one, perhaps on
 * another host. Each may be NULL, but not all. context is passed to them.
 *
 * From then on the task is saved within its calls of this library alone. It has 20 seconds to come to one, or
 * is not saved: a task that computes for long calls vm_try_recv every second.
 *
 * Errors: those of every call. */
int vm_around_saves(vm_task *vm, vm_before_save before_save, vm_after_save after_save,
                    vm_after_save after_resume, void *context);

#ifdef __cplusplus
}
#endif

#endif
