/* Saves a whole process and restores it: see docs/checkpoint.md.
 *
 * Link with -lvm_image. Or set LD_PRELOAD to libvm_image.so: then a program that does not call
 * this library can be saved by `vm image save PID FILE`.
 */
#ifndef VM_IMAGE_H
#define VM_IMAGE_H

#ifdef __cplusplus
extern "C" {
#endif

/* A copy of the process writes the image while this process runs. */
#define VM_IMAGE_FORKED 1u
/* The image carries the content of open regular files, including deleted ones. */
#define VM_IMAGE_CARRY_FILES 2u
/* Most of the memory is written in pre-copy rounds, while all other threads run. Each round writes
 * the pages that changed since the previous round. All threads are stopped only while the
 * remaining pages are written. */
#define VM_IMAGE_ROUNDS 4u

/* Saves this process with all its threads into an open file, pipe or socket.
 * 0: the process was saved, and runs on. 1: the call returned in the restored process.
 * -1: the process was not saved, and runs on; vm_image_error() returns the reason. */
int vm_image_save(int fd, unsigned flags);

/* Turns this process into the process of an image. Returns -1 if the restore could not begin;
 * a later failure ends the process. */
int vm_image_restore(int fd);

/* The reason why the last call of this thread failed; valid until the thread's next call. */
const char *vm_image_error(void);

/* Between these two calls this thread is not stopped; it stops when it leaves. Calls nest. */
void vm_image_enter(void);
void vm_image_leave(void);

#ifdef __cplusplus
}
#endif

#endif
