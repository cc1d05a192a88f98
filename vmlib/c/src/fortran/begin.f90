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

