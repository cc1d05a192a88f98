! The interfaces of the module, called with arguments of every kind: handles, ids, texts, arrays of numbers,
! structures, functions, and arguments that are left out.
module operations
  use, intrinsic :: iso_c_binding
  implicit none

contains

  ! The greater of two numbers (vm_function).
  subroutine greater(one, other, results, context) bind(C)
    integer(c_int32_t), intent(in) :: one, other
    integer(c_int32_t), intent(out) :: results
    type(c_ptr), value :: context
    results = max(one, other)
    if (c_associated(context)) error stop 'a context'
  end subroutine greater
end module operations

program calls
  use libvm
  use operations
  implicit none
  type(c_ptr) :: vm, group, blocks, message, requests(3), address
  integer(c_int64_t) :: me, read_id, ids(2)
  integer(c_size_t) :: count, index
  character(len=VM_TID_SIZE) :: text
  real(c_float) :: reals(3)
  integer(c_int32_t) :: numbers(4)
  integer(c_int64_t) :: longs(1)
  integer(c_int16_t), pointer :: shorts(:)
  integer(c_int) :: child
  type(vm_envelope) :: envelope
  type(vm_host_info) :: hosts(2)
  type(vm_event) :: event
  type(vm_member) :: members(1)
  type(c_ptr) :: spawn
  character(len=256) :: program_name

  call holds(vm_init(vm) == VM_OK, 'init')
  if (vm_parent(vm) /= VM_TID_NONE) then
    child = vm_exit(vm, 7)
    stop
  end if
  me = vm_mytid(vm)
  call holds(vm_tid_format(vm, me, text, int(len(text), c_size_t)) == VM_OK, 'format')
  call holds(text(1:1) == 't', 'format')
  call holds(vm_tid_parse(vm, text, read_id) == VM_OK, 'parse')
  call holds(vm_tid_equal(read_id, me) == 1, 'parse')
  call holds(vm_hosts(vm, hosts, 2_c_size_t, count) == VM_OK, 'hosts')
  call holds(count == 2, 'hosts')
  call holds(hosts(2)%id == 2 .and. hosts(2)%name(1) == 'n' .and. hosts(2)%name(2) == '2', 'name of a host')

  call holds(vm_send_array(vm, me, 5, [1.0_c_float, 2.5_c_float], 2_c_size_t, VM_FLOAT) == VM_OK, 'send')
  call holds(vm_probe(vm, VM_ANY_SOURCE, VM_ANY_TAG, envelope) == VM_OK, 'probe')
  call holds(envelope%size == 8 .and. envelope%tag == 5 .and. envelope%from == me, 'envelope')
  call holds(vm_recv_array(vm, me, 5, reals, 3_c_size_t, VM_FLOAT, VM_FOREVER) == VM_OK, 'receive')
  call holds(abs(reals(2) - 2.5) < 1e-6, 'what was received')
  call holds(vm_probe(vm, VM_ANY_SOURCE, VM_ANY_TAG) == VM_NOTHING, 'probe of nothing')
  call holds(vm_send(vm, VM_TID_NONE, 5, ['x'], 1_c_size_t) == VM_ENOTASK, 'send to none')
  call holds(len(vm_last_error_text()) > 0, 'words of an error')
  call holds(vm_strerror_text(VM_ENOTASK) == 'there is no such task', 'strerror')

  requests = c_null_ptr
  call holds(vm_start_recv(vm, me, 6, requests(1)) == VM_OK, 'start to receive')
  call holds(vm_start_send_array(vm, me, 6, [3_c_int32_t], 1_c_size_t, VM_INT32, &
             requests(3)) == VM_OK, 'start to send')
  call holds(vm_wait_any(vm, requests, 1_c_size_t, index, message) == VM_OK, 'wait for any')
  call holds(index == 0, 'wait for any')
  call holds(vm_message_read(message, numbers, 1_c_size_t, VM_INT32) == VM_OK, 'read')
  call holds(numbers(1) == 3, 'read')
  call holds(vm_message_free(message) == VM_OK, 'free')
  call holds(vm_wait_all(vm, requests, 3_c_size_t) == VM_OK, 'wait for all')
  call holds(.not. any([c_associated(requests(1)), c_associated(requests(3))]), 'requests are NULL')

  call holds(vm_join(vm, 'calls'//c_null_char, group) == VM_OK, 'join')
  call holds(vm_group_members(group, members, 1_c_size_t, count) == VM_OK, 'members')
  call holds(members(1)%tid == me .and. members(1)%instance == 0, 'a member')
  numbers = [1, 2, 3, 4]
  call holds(vm_allreduce_by(vm, group, c_funloc(greater), c_null_ptr, VM_ANY_ORDER, numbers, 4_c_size_t, &
             VM_INT32) == VM_OK, 'own operation')
  call holds(all(numbers == [1, 2, 3, 4]), 'result')
  call holds(vm_scan(vm, group, VM_SUM, numbers, 4_c_size_t, VM_INT32) == VM_OK, 'scan')
  longs = 9
  call holds(vm_broadcast(vm, group, 0, longs, 1_c_size_t, VM_INT64) == VM_OK, 'broadcast')
  call holds(vm_alltoallv(vm, group, [4_c_int16_t, 5_c_int16_t], [2_c_size_t], VM_INT16, &
             blocks) == VM_OK, 'all to all')
  call holds(vm_blocks_get(blocks, 0_c_size_t, address, count) == VM_OK, 'a block')
  call holds(count == 2, 'a block')
  call c_f_pointer(address, shorts, [count])
  call holds(all(shorts == [4, 5]), 'numbers of a block')
  call holds(vm_blocks_free(blocks) == VM_OK, 'leave')
  call holds(vm_leave(vm, group) == VM_OK, 'leave')

  call get_command_argument(0, program_name)
  call holds(vm_spawn_new(trim(program_name)//c_null_char, spawn) == VM_OK, 'describe')
  call holds(vm_spawn_on(spawn, 'n2'//c_null_char) == VM_OK, 'host')
  call holds(vm_spawn_start(vm, spawn, ids, 2_c_size_t) == VM_OK, 'spawn')
  call holds(vm_spawn_free(spawn) == VM_OK, 'spawn')
  call holds(vm_watch_task(vm, ids(1)) == VM_OK, 'watch')
  call holds(vm_next(vm, ids(1), VM_ANY_TAG, 60000_c_int64_t, message, event) == VM_OK, 'next')
  call holds(event%tid == ids(1) .and. event%end == VM_END_LEFT .and. event%status == 7, 'end')
  print '(a)', 'all calls of Fortran are right'

contains

  subroutine holds(condition, what)
    logical, intent(in) :: condition
    character(len=*), intent(in) :: what
    if (.not. condition) then
      print '(4a)', what, ' is not right: ', vm_last_error_text()
      error stop
    end if
  end subroutine holds
end program calls
