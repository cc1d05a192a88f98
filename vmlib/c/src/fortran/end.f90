
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
