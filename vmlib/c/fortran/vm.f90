! libvm - the task library of the virtual parallel machine, for Fortran.
!
! Compile with: gfortran vm.f90 program.f90 $(pkg-config --libs vm)
!
! The functions are those of vm.h, with the same arguments; the manual pages describe them. A handle is
! a type(c_ptr), an id of a task an integer(c_int64_t). Texts end with c_null_char: 'grid'//c_null_char.
! Arrays of numbers are passed as they are, with their count (size(x, kind=c_size_t)) and their type
! (VM_DOUBLE). Arguments that are optional here may be NULL in C.
!
! This file is made of vm.h.
module libvm
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int), parameter, public :: VM_OK = 0
  integer(c_int), parameter, public :: VM_NOTHING = 1
  integer(c_int), parameter, public :: VM_RESTORED = 2
  integer(c_int), parameter, public :: VM_EINVAL = -1
  integer(c_int), parameter, public :: VM_EINTERNAL = -2
  integer(c_int), parameter, public :: VM_ELEFT = -3
  integer(c_int), parameter, public :: VM_EINCALLBACK = -4
  integer(c_int), parameter, public :: VM_ELINK = -5
  integer(c_int), parameter, public :: VM_ENODAEMON = -6
  integer(c_int), parameter, public :: VM_ETWICE = -7
  integer(c_int), parameter, public :: VM_ESILENT = -8
  integer(c_int), parameter, public :: VM_EPROTOCOL = -9
  integer(c_int), parameter, public :: VM_ESYSTEM = -10
  integer(c_int), parameter, public :: VM_EREFUSED = -11
  integer(c_int), parameter, public :: VM_ETRYAGAIN = -12
  integer(c_int), parameter, public :: VM_ELIMIT = -13
  integer(c_int), parameter, public :: VM_ENOHOST = -14
  integer(c_int), parameter, public :: VM_EHOSTLOST = -15
  integer(c_int), parameter, public :: VM_ENOTASK = -16
  integer(c_int), parameter, public :: VM_EENDED = -17
  integer(c_int), parameter, public :: VM_ENOPROGRAM = -18
  integer(c_int), parameter, public :: VM_ENOEXEC = -19
  integer(c_int), parameter, public :: VM_EPARTLY = -20
  integer(c_int), parameter, public :: VM_ETOOLONG = -21
  integer(c_int), parameter, public :: VM_ESPACE = -22
  integer(c_int), parameter, public :: VM_ETYPE = -23
  integer(c_int), parameter, public :: VM_EINBOXFULL = -24
  integer(c_int), parameter, public :: VM_ENOTOPEN = -25
  integer(c_int), parameter, public :: VM_EUNSENT = -26
  integer(c_int), parameter, public :: VM_EINUSE = -27
  integer(c_int), parameter, public :: VM_ENOGROUP = -28
  integer(c_int), parameter, public :: VM_ENOTMEMBER = -29
  integer(c_int), parameter, public :: VM_ENOINSTANCE = -30
  integer(c_int), parameter, public :: VM_EVERSION = -31
  integer(c_int), parameter, public :: VM_EMEMBERLEFT = -32
  integer(c_int), parameter, public :: VM_EOUTOFSTEP = -33
  integer(c_int), parameter, public :: VM_EMEMBERFAILED = -34
  integer(c_int), parameter, public :: VM_ESHAPE = -35
  integer(c_int), parameter, public :: VM_EINTERRUPTED = -36
  integer(c_int64_t), parameter, public :: VM_TID_NONE = 0_c_int64_t
  integer(c_int64_t), parameter, public :: VM_ANY_SOURCE = -1_c_int64_t
  integer(c_int32_t), parameter, public :: VM_ANY_TAG = -huge(0_c_int32_t) - 1
  integer(c_int64_t), parameter, public :: VM_FOREVER = -1_c_int64_t
  integer(c_int), parameter, public :: VM_TID_SIZE = 32
  integer(c_int), parameter, public :: VM_NAME_SIZE = 256
  integer(c_int), parameter, public :: VM_INT8 = 1
  integer(c_int), parameter, public :: VM_UINT8 = 2
  integer(c_int), parameter, public :: VM_INT16 = 3
  integer(c_int), parameter, public :: VM_UINT16 = 4
  integer(c_int), parameter, public :: VM_INT32 = 5
  integer(c_int), parameter, public :: VM_UINT32 = 6
  integer(c_int), parameter, public :: VM_INT64 = 7
  integer(c_int), parameter, public :: VM_UINT64 = 8
  integer(c_int), parameter, public :: VM_FLOAT = 9
  integer(c_int), parameter, public :: VM_DOUBLE = 10
  integer(c_int), parameter, public :: VM_EVENT_NONE = 0
  integer(c_int), parameter, public :: VM_EVENT_TASK_ENDED = 1
  integer(c_int), parameter, public :: VM_EVENT_HOST_ADDED = 2
  integer(c_int), parameter, public :: VM_EVENT_HOST_DELETED = 3
  integer(c_int), parameter, public :: VM_END_LEFT = 1
  integer(c_int), parameter, public :: VM_END_CODE = 2
  integer(c_int), parameter, public :: VM_END_SIGNAL = 3
  integer(c_int), parameter, public :: VM_END_NOT_STARTED = 4
  integer(c_int), parameter, public :: VM_END_HOST_LOST = 5
  integer(c_int), parameter, public :: VM_END_SUSPENDED = 6
  integer(c_int), parameter, public :: VM_END_ROLLED_BACK = 7
  integer(c_int), parameter, public :: VM_END_UNKNOWN = 8
  integer(c_int), parameter, public :: VM_SUM = 1
  integer(c_int), parameter, public :: VM_PRODUCT = 2
  integer(c_int), parameter, public :: VM_MIN = 3
  integer(c_int), parameter, public :: VM_MAX = 4
  integer(c_int), parameter, public :: VM_AND = 5
  integer(c_int), parameter, public :: VM_OR = 6
  integer(c_int), parameter, public :: VM_XOR = 7
  integer(c_int), parameter, public :: VM_ANY_ORDER = 0
  integer(c_int), parameter, public :: VM_BY_INSTANCE = 1

  type, bind(C), public :: vm_envelope
    ! the sender
    integer(c_int64_t) :: from
    ! length in bytes
    integer(c_int64_t) :: size
    ! length in elements of the type that was asked for
    integer(c_int64_t) :: count
    ! the tag that the sender gave it
    integer(c_int32_t) :: tag
    ! 0
    integer(c_int32_t) :: reserved
  end type vm_envelope

  type, bind(C), public :: vm_host_info
    ! its number: 3 for h3
    integer(c_int32_t) :: id
    ! number of its cores
    integer(c_int32_t) :: cpus
    ! number of living tasks on it
    integer(c_int32_t) :: tasks
    ! most tasks that it takes
    integer(c_int32_t) :: tasks_max
    ! its name
    character(kind=c_char) :: name(VM_NAME_SIZE)
    ! address and port at which other daemons reach it
    character(kind=c_char) :: address(VM_NAME_SIZE)
    ! x86_64 or aarch64
    character(kind=c_char) :: arch(16)
  end type vm_host_info

  type, bind(C), public :: vm_event
    ! VM_EVENT_...
    integer(c_int32_t) :: kind
    ! of an ended task: VM_END_...
    integer(c_int32_t) :: end
    ! of an ended task: see VM_END_...
    integer(c_int32_t) :: status
    ! the number of the host that was added or deleted
    integer(c_int32_t) :: host
    ! the ended task
    integer(c_int64_t) :: tid
    ! the name of the host that was added or deleted
    character(kind=c_char) :: name(VM_NAME_SIZE)
  end type vm_event

  type, bind(C), public :: vm_member
    ! the task
    integer(c_int64_t) :: tid
    ! its number in the group
    integer(c_int32_t) :: instance
    ! 0
    integer(c_int32_t) :: reserved
  end type vm_member

  type, bind(C), public :: vm_move_report
    ! the number of the host that the task left
    integer(c_int32_t) :: from
    ! the number of the host where it runs now
    integer(c_int32_t) :: to
    ! bytes of its image
    integer(c_int64_t) :: bytes
    ! bytes of these that were sent while it ran
    integer(c_int64_t) :: copied
    ! how long it stood
    integer(c_int64_t) :: freeze_us
    ! from the request to its first instruction on the new host
    integer(c_int64_t) :: total_us
  end type vm_move_report

  type, bind(C), public :: vm_drain_report
    ! the number of the host
    integer(c_int32_t) :: host
    ! number of tasks that left
    integer(c_int32_t) :: moved
    ! number of tasks that stayed
    integer(c_int32_t) :: refused
    ! number of applications that were suspended, for a task could not leave
    integer(c_int32_t) :: saved
    ! from the request to the end of the last move; microseconds
    integer(c_int64_t) :: total_us
  end type vm_drain_report

  type, bind(C), public :: vm_checkpoint_report
    ! number of restarts of the application before it
    integer(c_int32_t) :: generation
    ! its number in that generation
    integer(c_int32_t) :: epoch
    ! number of tasks in it
    integer(c_int32_t) :: tasks
    ! 0
    integer(c_int32_t) :: reserved
    ! bytes of all images
    integer(c_int64_t) :: bytes
    ! bytes of their files in the store
    integer(c_int64_t) :: stored
    ! how long the task that stood longest stood
    integer(c_int64_t) :: freeze_us
    ! from the request until it was in the store
    integer(c_int64_t) :: total_us
  end type vm_checkpoint_report

  interface

    ! vm_strerror - says what a status or error code means
    function vm_strerror(code) &
        result(returned) bind(C, name="vm_strerror")
      import
      integer(c_int), value :: code
      type(c_ptr) :: returned
    end function vm_strerror

    ! vm_last_error - says what failed in the last failed call of this thread, and what to do
    function vm_last_error() &
        result(returned) bind(C, name="vm_last_error")
      import
      type(c_ptr) :: returned
    end function vm_last_error

    ! vm_init - makes this process a task of the machine
    function vm_init(vm) &
        result(returned) bind(C, name="vm_init")
      import
      type(c_ptr), intent(inout) :: vm
      integer(c_int) :: returned
    end function vm_init

    ! vm_exit - leaves the machine, with this status for those who watch; the process goes on
    function vm_exit(vm, status) &
        result(returned) bind(C, name="vm_exit")
      import
      type(c_ptr), value :: vm
      integer(c_int), value :: status
      integer(c_int) :: returned
    end function vm_exit

    ! vm_task_free - frees the handle; the process stays a task
    function vm_task_free(vm) &
        result(returned) bind(C, name="vm_task_free")
      import
      type(c_ptr), value :: vm
      integer(c_int) :: returned
    end function vm_task_free

    ! vm_interrupt_when - has the calls of this thread ask a question of the program while they wait
    function vm_interrupt_when(question) &
        result(returned) bind(C, name="vm_interrupt_when")
      import
      type(c_funptr), value :: question
      integer(c_int) :: returned
    end function vm_interrupt_when

    ! vm_mytid - the id of this task
    function vm_mytid(vm) &
        result(returned) bind(C, name="vm_mytid")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t) :: returned
    end function vm_mytid

    ! vm_parent - the id of the task that spawned this one; VM_TID_NONE for a master
    function vm_parent(vm) &
        result(returned) bind(C, name="vm_parent")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t) :: returned
    end function vm_parent

    ! vm_app - the application of this task: the id of its master, which may be this task
    function vm_app(vm) &
        result(returned) bind(C, name="vm_app")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t) :: returned
    end function vm_app

    ! vm_index - which of the tasks that were spawned together this one is, from 0
    function vm_index(vm) &
        result(returned) bind(C, name="vm_index")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t) :: returned
    end function vm_index

    ! vm_context - makes a handle of this task in a new context
    function vm_context(vm, other) &
        result(returned) bind(C, name="vm_context")
      import
      type(c_ptr), value :: vm
      type(c_ptr), intent(inout) :: other
      integer(c_int) :: returned
    end function vm_context

    ! vm_in_context - makes a handle of this task in a context that another task has made
    function vm_in_context(vm, number, other) &
        result(returned) bind(C, name="vm_in_context")
      import
      type(c_ptr), value :: vm
      integer(c_int32_t), value :: number
      type(c_ptr), intent(inout) :: other
      integer(c_int) :: returned
    end function vm_in_context

    ! vm_context_number - the number of a handle's context, to be sent to other tasks; 0 for that in which a program begins
    function vm_context_number(vm) &
        result(returned) bind(C, name="vm_context_number")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t) :: returned
    end function vm_context_number

    ! vm_siblings - stores the ids of the tasks that were spawned together with this one
    function vm_siblings(vm, tids, room, count) &
        result(returned) bind(C, name="vm_siblings")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), intent(inout) :: tids(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(inout) :: count
      integer(c_int) :: returned
    end function vm_siblings

    ! vm_host - the number of the host where this task runs now: another one after it was moved
    function vm_host(vm) &
        result(returned) bind(C, name="vm_host")
      import
      type(c_ptr), value :: vm
      integer(c_int) :: returned
    end function vm_host

    ! vm_hosts - stores the living hosts of the machine
    function vm_hosts(vm, hosts, room, count) &
        result(returned) bind(C, name="vm_hosts")
      import
      type(c_ptr), value :: vm
      type(vm_host_info), intent(inout) :: hosts(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(inout) :: count
      integer(c_int) :: returned
    end function vm_hosts

    ! vm_tid_format - writes an id as the console shows it: t3.17
    function vm_tid_format(vm, tid, text, size) &
        result(returned) bind(C, name="vm_tid_format")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: tid
      character(kind=c_char), intent(inout) :: text(*)
      integer(c_size_t), value :: size
      integer(c_int) :: returned
    end function vm_tid_format

    ! vm_tid_parse - reads an id that vm_tid_format, the console or a user has written
    function vm_tid_parse(vm, text, tid) &
        result(returned) bind(C, name="vm_tid_parse")
      import
      type(c_ptr), value :: vm
      character(kind=c_char), intent(in) :: text(*)
      integer(c_int64_t), intent(inout) :: tid
      integer(c_int) :: returned
    end function vm_tid_parse

    ! vm_tid_equal - whether two ids are those of one task: 1, or 0 if not
    function vm_tid_equal(one, other) &
        result(returned) bind(C, name="vm_tid_equal")
      import
      integer(c_int64_t), value :: one
      integer(c_int64_t), value :: other
      integer(c_int) :: returned
    end function vm_tid_equal

    ! vm_start_tasks - starts so many tasks of a program, on hosts that the machine chooses
    function vm_start_tasks(vm, program, args, count, tids) &
        result(returned) bind(C, name="vm_start_tasks")
      import
      type(c_ptr), value :: vm
      character(kind=c_char), intent(in) :: program(*)
      type(c_ptr), value :: args
      integer(c_int32_t), value :: count
      integer(c_int64_t), intent(inout) :: tids(*)
      integer(c_int) :: returned
    end function vm_start_tasks

    ! vm_spawn_new - begins to describe tasks of a program: one task, where the machine likes
    function vm_spawn_new(program, spawn) &
        result(returned) bind(C, name="vm_spawn_new")
      import
      character(kind=c_char), intent(in) :: program(*)
      type(c_ptr), intent(inout) :: spawn
      integer(c_int) :: returned
    end function vm_spawn_new

    ! vm_spawn_arg - adds an argument
    function vm_spawn_arg(spawn, arg) &
        result(returned) bind(C, name="vm_spawn_arg")
      import
      type(c_ptr), value :: spawn
      character(kind=c_char), intent(in) :: arg(*)
      integer(c_int) :: returned
    end function vm_spawn_arg

    ! vm_spawn_env - adds a variable to the environment, which is otherwise that of the host's daemon
    function vm_spawn_env(spawn, name, value) &
        result(returned) bind(C, name="vm_spawn_env")
      import
      type(c_ptr), value :: spawn
      character(kind=c_char), intent(in) :: name(*)
      character(kind=c_char), intent(in) :: value(*)
      integer(c_int) :: returned
    end function vm_spawn_env

    ! vm_spawn_dir - sets the working directory
    function vm_spawn_dir(spawn, dir) &
        result(returned) bind(C, name="vm_spawn_dir")
      import
      type(c_ptr), value :: spawn
      character(kind=c_char), intent(in) :: dir(*)
      integer(c_int) :: returned
    end function vm_spawn_dir

    ! vm_spawn_count - sets how many tasks are started, at most 4096
    function vm_spawn_count(spawn, count) &
        result(returned) bind(C, name="vm_spawn_count")
      import
      type(c_ptr), value :: spawn
      integer(c_int32_t), value :: count
      integer(c_int) :: returned
    end function vm_spawn_count

    ! vm_spawn_in_context - sets the context in which the tasks begin: that of the handle which vm_init makes there
    function vm_spawn_in_context(spawn, number) &
        result(returned) bind(C, name="vm_spawn_in_context")
      import
      type(c_ptr), value :: spawn
      integer(c_int32_t), value :: number
      integer(c_int) :: returned
    end function vm_spawn_in_context

    ! vm_spawn_on - adds a host, by its name or number (h3), to those on which the tasks start in turn
    function vm_spawn_on(spawn, host) &
        result(returned) bind(C, name="vm_spawn_on")
      import
      type(c_ptr), value :: spawn
      character(kind=c_char), intent(in) :: host(*)
      integer(c_int) :: returned
    end function vm_spawn_on

    ! vm_spawn_start - starts the described tasks; see vm_start_tasks
    function vm_spawn_start(vm, spawn, tids, room, started) &
        result(returned) bind(C, name="vm_spawn_start")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: spawn
      integer(c_int64_t), intent(inout) :: tids(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(inout), optional :: started
      integer(c_int) :: returned
    end function vm_spawn_start

    ! vm_spawn_free - frees a description
    function vm_spawn_free(spawn) &
        result(returned) bind(C, name="vm_spawn_free")
      import
      type(c_ptr), value :: spawn
      integer(c_int) :: returned
    end function vm_spawn_free

    ! vm_kill - ends a task at once, with SIGKILL
    function vm_kill(vm, tid) &
        result(returned) bind(C, name="vm_kill")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: tid
      integer(c_int) :: returned
    end function vm_kill

    ! vm_signal - sends a signal to a task's process
    function vm_signal(vm, tid, signal) &
        result(returned) bind(C, name="vm_signal")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: tid
      integer(c_int), value :: signal
      integer(c_int) :: returned
    end function vm_signal

    ! vm_send - sends bytes to a task
    function vm_send(vm, to, tag, bytes, size) &
        result(returned) bind(C, name="vm_send")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: to
      integer(c_int32_t), value :: tag
      type(*), intent(in) :: bytes(*)
      integer(c_size_t), value :: size
      integer(c_int) :: returned
    end function vm_send

    ! vm_send_array - sends count numbers of a type to a task; see vm_send
    function vm_send_array(vm, to, tag, values, count, numbers) &
        result(returned) bind(C, name="vm_send_array")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: to
      integer(c_int32_t), value :: tag
      type(*), intent(in) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_send_array

    ! vm_multicast - sends bytes to several tasks
    function vm_multicast(vm, to, to_count, tag, bytes, size) &
        result(returned) bind(C, name="vm_multicast")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), intent(in) :: to(*)
      integer(c_size_t), value :: to_count
      integer(c_int32_t), value :: tag
      type(*), intent(in) :: bytes(*)
      integer(c_size_t), value :: size
      integer(c_int) :: returned
    end function vm_multicast

    ! vm_multicast_array - sends count numbers of a type to several tasks
    function vm_multicast_array(vm, to, to_count, tag, values, count, numbers) &
        result(returned) bind(C, name="vm_multicast_array")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), intent(in) :: to(*)
      integer(c_size_t), value :: to_count
      integer(c_int32_t), value :: tag
      type(*), intent(in) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_multicast_array

    ! vm_recv - receives the first message of a sender with a tag, and waits for it
    function vm_recv(vm, from, tag, message) &
        result(returned) bind(C, name="vm_recv")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: from
      integer(c_int32_t), value :: tag
      type(c_ptr), intent(inout) :: message
      integer(c_int) :: returned
    end function vm_recv

    ! vm_try_recv - receives a message if one is there
    function vm_try_recv(vm, from, tag, message) &
        result(returned) bind(C, name="vm_try_recv")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: from
      integer(c_int32_t), value :: tag
      type(c_ptr), intent(inout) :: message
      integer(c_int) :: returned
    end function vm_try_recv

    ! vm_recv_timeout - receives a message, and waits for it no longer than a time
    function vm_recv_timeout(vm, from, tag, timeout_ms, message) &
        result(returned) bind(C, name="vm_recv_timeout")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: from
      integer(c_int32_t), value :: tag
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(inout) :: message
      integer(c_int) :: returned
    end function vm_recv_timeout

    ! vm_probe - looks whether a message is there, and leaves it there
    function vm_probe(vm, from, tag, envelope) &
        result(returned) bind(C, name="vm_probe")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: from
      integer(c_int32_t), value :: tag
      type(vm_envelope), intent(inout), optional :: envelope
      integer(c_int) :: returned
    end function vm_probe

    ! vm_recv_into - receives a message into the first bytes of a buffer of the program
    function vm_recv_into(vm, from, tag, buffer, room, timeout_ms, envelope) &
        result(returned) bind(C, name="vm_recv_into")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: from
      integer(c_int32_t), value :: tag
      type(*), intent(inout) :: buffer(*)
      integer(c_size_t), value :: room
      integer(c_int64_t), value :: timeout_ms
      type(vm_envelope), intent(inout), optional :: envelope
      integer(c_int) :: returned
    end function vm_recv_into

    ! vm_recv_array - receives numbers into an array with room for so many; see vm_recv_into
    function vm_recv_array(vm, from, tag, values, room, numbers, timeout_ms, envelope) &
        result(returned) bind(C, name="vm_recv_array")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: from
      integer(c_int32_t), value :: tag
      type(*), intent(inout) :: values(*)
      integer(c_size_t), value :: room
      integer(c_int32_t), value :: numbers
      integer(c_int64_t), value :: timeout_ms
      type(vm_envelope), intent(inout), optional :: envelope
      integer(c_int) :: returned
    end function vm_recv_array

    ! vm_message_from - the id of the sender
    function vm_message_from(message) &
        result(returned) bind(C, name="vm_message_from")
      import
      type(c_ptr), value :: message
      integer(c_int64_t) :: returned
    end function vm_message_from

    ! vm_message_tag - the tag that the sender gave it
    function vm_message_tag(message) &
        result(returned) bind(C, name="vm_message_tag")
      import
      type(c_ptr), value :: message
      integer(c_int32_t) :: returned
    end function vm_message_tag

    ! vm_message_size - its length in bytes
    function vm_message_size(message) &
        result(returned) bind(C, name="vm_message_size")
      import
      type(c_ptr), value :: message
      integer(c_size_t) :: returned
    end function vm_message_size

    ! vm_message_data - its bytes, which are there until the message is freed
    function vm_message_data(message) &
        result(returned) bind(C, name="vm_message_data")
      import
      type(c_ptr), value :: message
      type(c_ptr) :: returned
    end function vm_message_data

    ! vm_message_count - how many numbers of a type it has
    function vm_message_count(message, numbers) &
        result(returned) bind(C, name="vm_message_count")
      import
      type(c_ptr), value :: message
      integer(c_int32_t), value :: numbers
      integer(c_int64_t) :: returned
    end function vm_message_count

    ! vm_message_read - copies its numbers into an array of exactly as many
    function vm_message_read(message, values, count, numbers) &
        result(returned) bind(C, name="vm_message_read")
      import
      type(c_ptr), value :: message
      type(*), intent(inout) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_message_read

    ! vm_message_free - frees a message
    function vm_message_free(message) &
        result(returned) bind(C, name="vm_message_free")
      import
      type(c_ptr), value :: message
      integer(c_int) :: returned
    end function vm_message_free

    ! vm_watch_task - asks to be told of the end of a task; at once, if it has ended already
    function vm_watch_task(vm, tid) &
        result(returned) bind(C, name="vm_watch_task")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: tid
      integer(c_int) :: returned
    end function vm_watch_task

    ! vm_unwatch_task - asks no more to be told of the end of a task
    function vm_unwatch_task(vm, tid) &
        result(returned) bind(C, name="vm_unwatch_task")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: tid
      integer(c_int) :: returned
    end function vm_unwatch_task

    ! vm_watch_hosts - asks to be told of hosts that are added, deleted or lost
    function vm_watch_hosts(vm) &
        result(returned) bind(C, name="vm_watch_hosts")
      import
      type(c_ptr), value :: vm
      integer(c_int) :: returned
    end function vm_watch_hosts

    ! vm_unwatch_hosts - asks no more to be told of hosts
    function vm_unwatch_hosts(vm) &
        result(returned) bind(C, name="vm_unwatch_hosts")
      import
      type(c_ptr), value :: vm
      integer(c_int) :: returned
    end function vm_unwatch_hosts

    ! vm_recv_event - the next event, for which it waits no longer than a time
    function vm_recv_event(vm, timeout_ms, event) &
        result(returned) bind(C, name="vm_recv_event")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: timeout_ms
      type(vm_event), intent(inout) :: event
      integer(c_int) :: returned
    end function vm_recv_event

    ! vm_next - the next message that is selected, or event, whichever is there first
    function vm_next(vm, from, tag, timeout_ms, message, event) &
        result(returned) bind(C, name="vm_next")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: from
      integer(c_int32_t), value :: tag
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(inout) :: message
      type(vm_event), intent(inout) :: event
      integer(c_int) :: returned
    end function vm_next

    ! vm_start_send - starts to send bytes, and returns at once
    function vm_start_send(vm, to, tag, bytes, size, request) &
        result(returned) bind(C, name="vm_start_send")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: to
      integer(c_int32_t), value :: tag
      type(*), intent(in) :: bytes(*)
      integer(c_size_t), value :: size
      type(c_ptr), intent(inout) :: request
      integer(c_int) :: returned
    end function vm_start_send

    ! vm_start_send_array - starts to send count numbers of a type; see vm_start_send
    function vm_start_send_array(vm, to, tag, values, count, numbers, request) &
        result(returned) bind(C, name="vm_start_send_array")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: to
      integer(c_int32_t), value :: tag
      type(*), intent(in) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      type(c_ptr), intent(inout) :: request
      integer(c_int) :: returned
    end function vm_start_send_array

    ! vm_start_recv - starts to receive the first message of a sender with a tag, and returns at once
    function vm_start_recv(vm, from, tag, request) &
        result(returned) bind(C, name="vm_start_recv")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: from
      integer(c_int32_t), value :: tag
      type(c_ptr), intent(inout) :: request
      integer(c_int) :: returned
    end function vm_start_recv

    ! vm_test - completes a request, if that can be done at once
    function vm_test(request, message) &
        result(returned) bind(C, name="vm_test")
      import
      type(c_ptr), intent(inout) :: request
      type(c_ptr), intent(inout), optional :: message
      integer(c_int) :: returned
    end function vm_test

    ! vm_wait - completes a request, and waits for that; see vm_test
    function vm_wait(request, message) &
        result(returned) bind(C, name="vm_wait")
      import
      type(c_ptr), intent(inout) :: request
      type(c_ptr), intent(inout), optional :: message
      integer(c_int) :: returned
    end function vm_wait

    ! vm_wait_any - completes one of count requests, and waits for that
    function vm_wait_any(vm, requests, count, index, message) &
        result(returned) bind(C, name="vm_wait_any")
      import
      type(c_ptr), value :: vm
      type(c_ptr), intent(inout) :: requests(*)
      integer(c_size_t), value :: count
      integer(c_size_t), intent(inout) :: index
      type(c_ptr), intent(inout), optional :: message
      integer(c_int) :: returned
    end function vm_wait_any

    ! vm_wait_all - completes count requests, and waits for that
    function vm_wait_all(vm, requests, count, messages) &
        result(returned) bind(C, name="vm_wait_all")
      import
      type(c_ptr), value :: vm
      type(c_ptr), intent(inout) :: requests(*)
      integer(c_size_t), value :: count
      type(c_ptr), intent(inout), optional :: messages(*)
      integer(c_int) :: returned
    end function vm_wait_all

    ! vm_cancel - frees a request, and sets *request to NULL
    function vm_cancel(request) &
        result(returned) bind(C, name="vm_cancel")
      import
      type(c_ptr), intent(inout) :: request
      integer(c_int) :: returned
    end function vm_cancel

    ! vm_join - joins the group of that name, which its first member makes
    function vm_join(vm, name, group) &
        result(returned) bind(C, name="vm_join")
      import
      type(c_ptr), value :: vm
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), intent(inout) :: group
      integer(c_int) :: returned
    end function vm_join

    ! vm_leave - leaves the group, and frees the handle, also after an error other than VM_EINUSE
    function vm_leave(vm, group) &
        result(returned) bind(C, name="vm_leave")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int) :: returned
    end function vm_leave

    ! vm_group_free - frees the handle; this task stays a member
    function vm_group_free(group) &
        result(returned) bind(C, name="vm_group_free")
      import
      type(c_ptr), value :: group
      integer(c_int) :: returned
    end function vm_group_free

    ! vm_group_name - writes the name of the group; VM_NAME_SIZE bytes are enough
    function vm_group_name(group, name, size) &
        result(returned) bind(C, name="vm_group_name")
      import
      type(c_ptr), value :: group
      character(kind=c_char), intent(inout) :: name(*)
      integer(c_size_t), value :: size
      integer(c_int) :: returned
    end function vm_group_name

    ! vm_group_instance - the number of this task in the group: the lowest that was free when it joined
    function vm_group_instance(group) &
        result(returned) bind(C, name="vm_group_instance")
      import
      type(c_ptr), value :: group
      integer(c_int64_t) :: returned
    end function vm_group_instance

    ! vm_group_size - how many members the group has, as far as the handle knows
    function vm_group_size(group) &
        result(returned) bind(C, name="vm_group_size")
      import
      type(c_ptr), value :: group
      integer(c_int64_t) :: returned
    end function vm_group_size

    ! vm_group_tid - the member with that instance number
    function vm_group_tid(group, instance, tid) &
        result(returned) bind(C, name="vm_group_tid")
      import
      type(c_ptr), value :: group
      integer(c_int32_t), value :: instance
      integer(c_int64_t), intent(inout) :: tid
      integer(c_int) :: returned
    end function vm_group_tid

    ! vm_group_members - stores the members, as far as the handle knows, by instance
    function vm_group_members(group, members, room, count) &
        result(returned) bind(C, name="vm_group_members")
      import
      type(c_ptr), value :: group
      type(vm_member), intent(inout) :: members(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(inout) :: count
      integer(c_int) :: returned
    end function vm_group_members

    ! vm_members - stores the members of the group of that name, which this task need not be in
    function vm_members(vm, name, members, room, count) &
        result(returned) bind(C, name="vm_members")
      import
      type(c_ptr), value :: vm
      character(kind=c_char), intent(in) :: name(*)
      type(vm_member), intent(inout) :: members(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(inout) :: count
      integer(c_int) :: returned
    end function vm_members

    ! vm_refresh - brings the handle up to what the machine knows now
    function vm_refresh(vm, group) &
        result(returned) bind(C, name="vm_refresh")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int) :: returned
    end function vm_refresh

    ! vm_await_members - waits until the group has at least count members, and brings the handle up to that
    function vm_await_members(vm, group, count) &
        result(returned) bind(C, name="vm_await_members")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_size_t), value :: count
      integer(c_int) :: returned
    end function vm_await_members

    ! vm_barrier - waits until every member has called this
    function vm_barrier(vm, group) &
        result(returned) bind(C, name="vm_barrier")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int) :: returned
    end function vm_barrier

    ! vm_broadcast - gives the count values of the root to all members
    function vm_broadcast(vm, group, root, values, count, numbers) &
        result(returned) bind(C, name="vm_broadcast")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int32_t), value :: root
      type(*), intent(inout) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_broadcast

    ! vm_broadcast_bytes - gives bytes of the root to all members, which need not know how many
    function vm_broadcast_bytes(vm, group, root, bytes, size, received) &
        result(returned) bind(C, name="vm_broadcast_bytes")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int32_t), value :: root
      type(*), intent(in) :: bytes(*)
      integer(c_size_t), value :: size
      type(c_ptr), intent(inout) :: received
      integer(c_int) :: returned
    end function vm_broadcast_bytes

    ! vm_reduce - combines the values of all members, place by place, for the root
    function vm_reduce(vm, group, root, op, values, results, count, numbers) &
        result(returned) bind(C, name="vm_reduce")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int32_t), value :: root
      integer(c_int32_t), value :: op
      type(*), intent(in) :: values(*)
      type(*), intent(inout) :: results(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_reduce

    ! vm_reduce_by - as vm_reduce, with an operation of the program's own
    function vm_reduce_by(vm, group, root, operation, context, order, values, results, count, numbers) &
        result(returned) bind(C, name="vm_reduce_by")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int32_t), value :: root
      type(c_funptr), value :: operation
      type(c_ptr), value :: context
      integer(c_int), value :: order
      type(*), intent(in) :: values(*)
      type(*), intent(inout) :: results(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_reduce_by

    ! vm_allreduce - combines the values of all members, place by place, for all
    function vm_allreduce(vm, group, op, values, count, numbers) &
        result(returned) bind(C, name="vm_allreduce")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int32_t), value :: op
      type(*), intent(inout) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_allreduce

    ! vm_allreduce_by - as vm_allreduce, with an operation of the program's own; see vm_reduce_by
    function vm_allreduce_by(vm, group, operation, context, order, values, count, numbers) &
        result(returned) bind(C, name="vm_allreduce_by")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      type(c_funptr), value :: operation
      type(c_ptr), value :: context
      integer(c_int), value :: order
      type(*), intent(inout) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_allreduce_by

    ! vm_min_with_place - the smallest value of all members at each place, and the lowest instance that has it
    function vm_min_with_place(vm, group, values, instances, count, numbers) &
        result(returned) bind(C, name="vm_min_with_place")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      type(*), intent(inout) :: values(*)
      integer(c_int32_t), intent(inout) :: instances(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_min_with_place

    ! vm_max_with_place - the greatest value of all members at each place, and the lowest instance that has it
    function vm_max_with_place(vm, group, values, instances, count, numbers) &
        result(returned) bind(C, name="vm_max_with_place")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      type(*), intent(inout) :: values(*)
      integer(c_int32_t), intent(inout) :: instances(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_max_with_place

    ! vm_scan - combines the values of the members with lower instances and this one's own
    function vm_scan(vm, group, op, values, count, numbers) &
        result(returned) bind(C, name="vm_scan")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int32_t), value :: op
      type(*), intent(inout) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_scan

    ! vm_scan_by - as vm_scan, with an operation of the program's own; its operands come by instance
    function vm_scan_by(vm, group, operation, context, values, count, numbers) &
        result(returned) bind(C, name="vm_scan_by")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      type(c_funptr), value :: operation
      type(c_ptr), value :: context
      type(*), intent(inout) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_scan_by

    ! vm_exclusive_scan - combines the values of the members with lower instances, without this one's own
    function vm_exclusive_scan(vm, group, op, values, count, numbers) &
        result(returned) bind(C, name="vm_exclusive_scan")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int32_t), value :: op
      type(*), intent(inout) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_exclusive_scan

    ! vm_gather - gives the count values of each member, one after the other by instance, to the root
    function vm_gather(vm, group, root, values, count, results, room, numbers) &
        result(returned) bind(C, name="vm_gather")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int32_t), value :: root
      type(*), intent(in) :: values(*)
      integer(c_size_t), value :: count
      type(*), intent(inout) :: results(*)
      integer(c_size_t), value :: room
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_gather

    ! vm_gatherv - as vm_gather, with as many values as each member likes
    function vm_gatherv(vm, group, root, values, count, numbers, blocks) &
        result(returned) bind(C, name="vm_gatherv")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int32_t), value :: root
      type(*), intent(in) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      type(c_ptr), intent(inout) :: blocks
      integer(c_int) :: returned
    end function vm_gatherv

    ! vm_scatter - gives each member its block of count of the root's values, by instance
    function vm_scatter(vm, group, root, values, count, results, numbers) &
        result(returned) bind(C, name="vm_scatter")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int32_t), value :: root
      type(*), intent(in) :: values(*)
      integer(c_size_t), value :: count
      type(*), intent(inout) :: results(*)
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_scatter

    ! vm_scatterv - as vm_scatter, with as many values for each member as the root likes
    function vm_scatterv(vm, group, root, values, counts, numbers, block) &
        result(returned) bind(C, name="vm_scatterv")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      integer(c_int32_t), value :: root
      type(*), intent(in) :: values(*)
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int32_t), value :: numbers
      type(c_ptr), intent(inout) :: block
      integer(c_int) :: returned
    end function vm_scatterv

    ! vm_allgather - gives the count values of each member, one after the other by instance, to all
    function vm_allgather(vm, group, values, count, results, room, numbers) &
        result(returned) bind(C, name="vm_allgather")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      type(*), intent(in) :: values(*)
      integer(c_size_t), value :: count
      type(*), intent(inout) :: results(*)
      integer(c_size_t), value :: room
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_allgather

    ! vm_allgatherv - as vm_allgather, with as many values as each member likes
    function vm_allgatherv(vm, group, values, count, numbers, blocks) &
        result(returned) bind(C, name="vm_allgatherv")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      type(*), intent(in) :: values(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: numbers
      type(c_ptr), intent(inout) :: blocks
      integer(c_int) :: returned
    end function vm_allgatherv

    ! vm_alltoall - gives each member its block of count of each member's values
    function vm_alltoall(vm, group, values, count, results, numbers) &
        result(returned) bind(C, name="vm_alltoall")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      type(*), intent(in) :: values(*)
      integer(c_size_t), value :: count
      type(*), intent(inout) :: results(*)
      integer(c_int32_t), value :: numbers
      integer(c_int) :: returned
    end function vm_alltoall

    ! vm_alltoallv - as vm_alltoall, with as many values for each member as each likes
    function vm_alltoallv(vm, group, values, counts, numbers, blocks) &
        result(returned) bind(C, name="vm_alltoallv")
      import
      type(c_ptr), value :: vm
      type(c_ptr), value :: group
      type(*), intent(in) :: values(*)
      integer(c_size_t), intent(in) :: counts(*)
      integer(c_int32_t), value :: numbers
      type(c_ptr), intent(inout) :: blocks
      integer(c_int) :: returned
    end function vm_alltoallv

    ! vm_blocks_count - how many blocks there are
    function vm_blocks_count(blocks) &
        result(returned) bind(C, name="vm_blocks_count")
      import
      type(c_ptr), value :: blocks
      integer(c_int64_t) :: returned
    end function vm_blocks_count

    ! vm_blocks_get - where the numbers of the block of that index (from 0) are, and how many
    function vm_blocks_get(blocks, index, values, count) &
        result(returned) bind(C, name="vm_blocks_get")
      import
      type(c_ptr), value :: blocks
      integer(c_size_t), value :: index
      type(c_ptr), intent(out) :: values
      integer(c_size_t), intent(inout) :: count
      integer(c_int) :: returned
    end function vm_blocks_get

    ! vm_blocks_free - frees blocks
    function vm_blocks_free(blocks) &
        result(returned) bind(C, name="vm_blocks_free")
      import
      type(c_ptr), value :: blocks
      integer(c_int) :: returned
    end function vm_blocks_free

    ! vm_move - moves a task, which may be this one, to another host while all others run
    function vm_move(vm, tid, host, report) &
        result(returned) bind(C, name="vm_move")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: tid
      character(kind=c_char), intent(in), optional :: host(*)
      type(vm_move_report), intent(inout), optional :: report
      integer(c_int) :: returned
    end function vm_move

    ! vm_can_move - whether a task can be moved
    function vm_can_move(vm, tid) &
        result(returned) bind(C, name="vm_can_move")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: tid
      integer(c_int) :: returned
    end function vm_can_move

    ! vm_drain - has all tasks of a host move to others, also this one if it is there
    function vm_drain(vm, host, report) &
        result(returned) bind(C, name="vm_drain")
      import
      type(c_ptr), value :: vm
      character(kind=c_char), intent(in) :: host(*)
      type(vm_drain_report), intent(inout), optional :: report
      integer(c_int) :: returned
    end function vm_drain

    ! vm_checkpoint - saves all tasks of this application together
    function vm_checkpoint(vm, report) &
        result(returned) bind(C, name="vm_checkpoint")
      import
      type(c_ptr), value :: vm
      type(vm_checkpoint_report), intent(inout), optional :: report
      integer(c_int) :: returned
    end function vm_checkpoint

    ! vm_suspend - suspends the application of that master: it is saved, and ends with that
    function vm_suspend(vm, app, time_ms, report) &
        result(returned) bind(C, name="vm_suspend")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: app
      integer(c_int64_t), value :: time_ms
      type(vm_checkpoint_report), intent(inout), optional :: report
      integer(c_int) :: returned
    end function vm_suspend

    ! vm_resume - resumes an application that is suspended; returns when all its tasks run
    function vm_resume(vm, app) &
        result(returned) bind(C, name="vm_resume")
      import
      type(c_ptr), value :: vm
      integer(c_int64_t), value :: app
      integer(c_int) :: returned
    end function vm_resume

    ! vm_around_saves - has functions called around each save of this task: for a move, a checkpoint, a suspend
    function vm_around_saves(vm, before_save, after_save, after_resume, context) &
        result(returned) bind(C, name="vm_around_saves")
      import
      type(c_ptr), value :: vm
      type(c_funptr), value :: before_save
      type(c_funptr), value :: after_save
      type(c_funptr), value :: after_resume
      type(c_ptr), value :: context
      integer(c_int) :: returned
    end function vm_around_saves
  end interface

contains

  ! What failed in the last failed call of this thread, and what to do.
  function vm_last_error_text() result(text)
    character(len=:), allocatable :: text
    text = text_at(vm_last_error())
  end function vm_last_error_text

  ! What a status or error code means.
  function vm_strerror_text(code) result(text)
    integer(c_int), intent(in) :: code
    character(len=:), allocatable :: text
    text = text_at(vm_strerror(code))
  end function vm_strerror_text

  ! The text at an address, up to its zero byte.
  function text_at(address) result(text)
    type(c_ptr), intent(in) :: address
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: length, i
    integer, parameter :: longest = 65536
    call c_f_pointer(address, letters, [longest])
    length = 0
    do while (length < longest)
      if (letters(length + 1) == c_null_char) exit
      length = length + 1
    end do
    allocate (character(len=length) :: text)
    do i = 1, length
      text(i:i) = letters(i)
    end do
  end function text_at
end module libvm
