/* Saves a whole process and brings it back: see docs/checkpoint.md.
 *
 * Link with -lvm_image; or set LD_PRELOAD to libvm_image.so, and a program that knows nothing
 * of it can be saved by `vm image save PID FILE`.
 */
#ifndef VM_IMAGE_H
#define VM_IMAGE_H

#ifdef __cplusplus
extern "C" {
#endif

/* A copy of the process writes, while this one goes on. */
#define VM_IMAGE_FORKED 1u
/* The image has the content of open regular files too, those that were deleted among them. */
#define VM_IMAGE_CARRY_FILES 2u
/* Most of the memory is written while all other threads run, in rounds, each of what was written
 * since the one before; only what is left then is written while all are stopped. */
#define VM_IMAGE_ROUNDS 4u

/* Saves this process with all its threads into an open file, pipe or socket.
 * 0: saved, and here it goes on. 1: this is the process that was brought back.
 * -1: not saved, and here it goes on; vm_image_error() says why. */
int vm_image_save(int fd, unsigned flags);

/* Becomes the process of an image. Returns only if that could not be begun: -1. */
int vm_image_restore(int fd);

/* What the last call of this thread failed of; valid until its next call. */
const char *vm_image_error(void);

/* Between these two, which nest, this thread is not stopped: it stops when it leaves. */
void vm_image_enter(void);
void vm_image_leave(void);

#ifdef __cplusplus
}
#endif

#endif
