! pi - the members of a group compute pi; a member moves to another host in the middle.
!
!   gfortran -O2 -o pi vm.f90 pi.f90 $(pkg-config --libs vm)
!   vm run ./pi
!
! vm.f90 is in the folder of vm.h. The master starts three more of this program. Each member sums its share of
! the terms, and all get the sum of all. Then a member moves itself, and they compute once more.
program pi
  use libvm
  implicit none
  integer, parameter :: members = 4, terms = 1000000
  type(c_ptr) :: vm, group
  integer(c_int64_t) :: workers(members - 1)
  real(c_double) :: first, second
  character(len=256) :: program_name

  call check(vm_init(vm), 'becoming a task')
  if (vm_parent(vm) == VM_TID_NONE) then
    call get_command_argument(0, program_name)
    call check(vm_start_tasks(vm, trim(program_name)//c_null_char, c_null_ptr, members - 1, workers), &
               'starting the workers')
  end if
  call check(vm_join(vm, 'pi'//c_null_char, group), 'joining the group')
  call check(vm_await_members(vm, group, int(members, c_size_t)), 'waiting for the members')

  first = sum_of_all()
  if (vm_group_instance(group) == members - 1) call move_away()
  second = sum_of_all()

  ! The same call with the same values gives the same bits, also after a move.
  if (vm_group_instance(group) == 0) then
    if (abs(first - second) > 0) error stop 'pi has changed'
    print '(a, f12.10)', 'pi is ', first
  end if
  call check(vm_barrier(vm, group), 'waiting for all')
  call check(vm_leave(vm, group), 'leaving the group')

contains

  ! The integral of 4 / (1 + x**2) from 0 to 1.
  function sum_of_all() result(total)
    real(c_double) :: total, x, share(1)
    integer :: i
    share = 0
    do i = int(vm_group_instance(group)), terms - 1, members
      x = (i + 0.5_c_double) / terms
      share(1) = share(1) + 4 / (1 + x**2) / terms
    end do
    call check(vm_allreduce(vm, group, VM_SUM, share, 1_c_size_t, VM_DOUBLE), 'adding')
    total = share(1)
  end function sum_of_all

  subroutine move_away()
    type(vm_move_report) :: report
    integer(c_int) :: code
    code = vm_move(vm, vm_mytid(vm), report=report)
    if (code == VM_OK) then
      print '(a, i0, a, i0)', 'a member moved from h', report%from, ' to h', report%to
    else
      print '(2a)', 'it was not moved: ', vm_last_error_text()
    end if
  end subroutine move_away

  ! Ends the program with the words of the library if a call failed.
  subroutine check(code, what)
    integer(c_int), intent(in) :: code
    character(len=*), intent(in) :: what
    if (code < 0) then
      print '(5a)', what, ': ', vm_strerror_text(code), ': ', vm_last_error_text()
      error stop
    end if
  end subroutine check
end program pi
