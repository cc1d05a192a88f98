//! Runs every program of the zoo in every mode: the process runs on after the save or ends, a copy
//! writes the image, the restored process is saved again, other threads are busy, the host has
//! another kernel's vdso. The programs are in `examples/zoo` and `zoo`; each checks its own state.

mod locks;
mod modes;
mod narrow;
mod native;
mod preload;
mod programs;
mod python;
mod rights;
#[allow(dead_code, reason = "each test uses its part")]
mod run;
mod unlike;

use modes::{Kind, Program};

/// A test for each program.
macro_rules! zoo {
    ($($kind:ident: $($name:ident),* $(,)?;)*) => {
        $($(
            #[test]
            fn $name() {
                Program::of_zoo(stringify!($name), Kind::$kind).check();
            }
        )*)*
        const ALL: &[&str] = &[$($(stringify!($name)),*),*];
    };
}

zoo! {
    Copied:
        heap, sparse, closed_with_content, guard_pages, break_heap, mappings, file_mapped_privately, advice,
        shared_anonymous, shared_twice, shared_by_a_child_that_ended, shared_and_written_by_descriptor,
        shared_shown_privately, deleted_file_shown_read_only,
        deep_stack, deep_stack_of_a_thread, thread_locals, panic_caught,
        busy_threads, mutex_held, rwlock_held, scoped_threads, condvar_with_time,
        threads_that_come_and_go, saved_by_a_thread, thread_names,
        many_blocked_threads,
        waits_that_may_be_cut_short, waits_that_go_on, sleep_has_its_time,
        general_registers, vector_registers, wide_vector_registers, floating_point_state,
        signal_actions, signal_masks, alternate_stack_in_use, saved_in_a_handler,
        pending_for_the_process, pending_when_another_thread_saves,
        pending_for_a_thread, pending_with_values_for_a_thread,
        interval_timers, interval_timer_that_waits, alarm, posix_timers, cpu_time_timer, cpu_time_by_number, timers_of_threads,
        working_directory, environment, umask, limits, limit_below_what_is_open, name_and_arguments, nice, affinity,
        random_numbers, random_numbers_of_the_kernel, clocks, identity, rights_given_up, memory_barriers, terminal_modes,
        large_pages_and_want_of_memory,
        files_of_the_kernel, file_read, file_shared_by_dup, directory, file_that_grows, output_that_grows,
        file_carried, file_deleted_and_carried, file_with_holes, memory_file_carried, memory_file_that_is_a_program,
        file_that_links_do_not_lead_to, file_with_owner_and_rights, file_with_holes_and_a_lock,
        pipe_with_content, pipe_that_is_full, pipe_with_duplicates, pipe_opened_twice, harmless_devices,
        standard_output_twice, standard_streams_that_were_one, many_descriptors, gaps,
        locks_on_files, locks_are_not_lost_by_a_save;
    Moved: shared_file, file_written, file_appended, file_unreadable;
    Refused:
        refused_socket, refused_pipe, refused_named_pipe, refused_epoll, refused_eventfd,
        refused_timerfd, refused_signalfd, refused_inotify, refused_io_uring, refused_pidfd,
        refused_device, refused_deleted_file, refused_sealed_file, refused_unreadable_to_be_carried, refused_memfd, refused_mapped_memfd, refused_mapped_deleted_file,
        refused_file_with_another_name, refused_file_of_another_process, refused_file_without_path, refused_shm, refused_lease, refused_child, refused_child_that_ended,
        refused_blocked_signal, refused_without_leader, refused_not_dumpable,
        refused_system_v_memory, refused_hidden_memory, refused_directory_that_is_gone, refused_second_save,
        refused_protection_keys, refused_private_view_of_what_is_written, refused_rights_of_a_thread,
        refused_memory_in_the_restorers_place;
}

#[test]
fn no_program_of_the_zoo_is_left_out() {
    let list = run::start(
        std::process::Command::new(run::zoo()).arg("list"),
        run::User::Same,
    )
    .end();
    let is_elsewhere = |name: &&str| name.starts_with("stress_");
    let left_out: Vec<_> = list
        .output
        .lines()
        .filter(|name| !ALL.contains(name) && !is_elsewhere(name))
        .collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}
