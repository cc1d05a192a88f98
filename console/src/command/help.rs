//! The long texts of `vm help COMMAND`.

pub(super) const TOP_HELP: &str = "\
Exit codes:
  0    done
  1    the machine refused or failed: the message says what and why
  2    the command line is wrong
  3    no daemon could be reached, or the connection to it was lost
  130  interrupted
  `run` ends with the exit code of its program, or 128 + N if signal N ended it;
  `vm help run` lists its other exit codes. `restart` without --detach does the
  same. `image run` ends as the restored process does; 124 if the process cannot
  be restored here, 125 if the restored process could not resume.

Environment:
  VM_DIR       the daemon's folder, unless --dir is given
  VM_LAUNCHER  how `add` starts a daemon on another host
  VM_HISTORY   file of the prompt's history (default ~/.vm_history)
  VM_RC        commands that the prompt begins with (default ~/.vmrc)

Example:
  vm run ./program arguments
  vm add node1 node2
  vm --json conf";

pub(super) const RUN_HELP: &str = "\
The program becomes a child of this host's daemon and the master of a new
application. Its output, and that of all tasks it spawns, appears here; lines of
tasks other than the master begin with their tid. Standard input and the signals
INT, QUIT, TERM, HUP, USR1, USR2 and TSTP (as STOP; then CONT) go to the master.
If standard input and output are both terminals, the master gets a terminal too.
It sees this console's environment. If the console is lost, the master gets
SIGHUP.

With --json, each event is one line: started, output, ended.

Exit code: the program's, as if it were local, 128 + N if signal N ended it; or
  2    the command line is wrong
  75   the application ended with a checkpoint, and can be restarted
  122  the application runs on, but this host leaves the machine
  123  the machine refused to start the program
  124  the application cannot be restarted from its checkpoint
  125  the machine failed: no daemon, or a lost daemon
  126  the program exists and cannot be executed
  127  there is no such program
  130  interrupted before the program was started
  141  nobody reads the output any more

With --resume-or-start the same command, given again, restarts the application
from its last checkpoint: that of `vm stop --checkpoint`, or of
--checkpoint-every before the machine ended. A job of a batch system is
submitted again unchanged. The name of the program selects the application: give
each job a store of its own (`vmd --store`). The arguments are those of the
first start. The checkpoint policy is that of this command, if it states one.

When a host is lost, an application that has a checkpoint is restarted from it
on the remaining hosts; --recover says when else, or never.

Example:
  vm run --env THREADS=2 ./simulate --steps 1000 < input > output
  vm run --resume-or-start --checkpoint-every 10m ./simulate --steps 1000";

pub(super) const SPAWN_HELP: &str = "\
Prints the tids. The programs run on when the console ends; their output goes to
the log of the daemon on their host. They start in the console's folder, or in
that of --cwd, which has to exist on their hosts. Below the --work-dir of its
daemon a program finds its files again after a move. If only some programs could
be started, the error names these, and says why the others were not.

Example:
  vm spawn -n 4 --on node1,node2 ./worker --verbose";

pub(super) const PS_HELP: &str = "\
STATE is that of the process, as ps(1) shows it: R running, S sleeping, D
waiting for the disk, T stopped, Z ended. CPU is user and system time; after a
move, only that of the process on the present host. A dash: the task's host did
not reply in time.

Example:
  vm ps
  vm ps t1.3
  vm --json ps | jq -r .tasks[].tid";

pub(super) const KILL_HELP: &str = "\
If the task is the master of an application, all other tasks of the application
end too.

Example:
  vm kill t2.5 t2.6";

pub(super) const SIG_HELP: &str = "\
Names may be given with or without SIG, in any case; RTMIN+3 and RTMAX-1 are
known too. 0, with which kill(1) tests whether a process lives, is refused: see
`ps`.

Example:
  vm sig TERM t2.5
  vm sig 10 t2.5 t2.6";

pub(super) const MOVE_HELP: &str = "\
The program does not notice the move: its memory, threads, open files and
messages move along, and all other tasks run on. If the move fails, the task
runs on at its source host, and the reason is shown. A move continues when this
command is interrupted. Only programs that use vmlib can be moved.

Example:
  vm move t2.5 nodeB
  vm move t2.5 h3
  vm move t2.5
  vm move t2.5 nodeB --no-precopy";

pub(super) const CHECKPOINT_HELP: &str = "\
All tasks are frozen for some milliseconds, and run on while copies of them
write their images; no in-transit message is lost or duplicated. Either the
whole checkpoint is in the store (see `vmd --store`), or nothing, and the reason
is shown. The program does not notice it. Only programs that use vmlib can be
saved.

With --every no checkpoint is made now. From then on the machine makes one so
long after the end of each, as long as the application runs, and also after a
restart. If one fails, the log of a daemon says why. Each such command states
the whole policy: an option that it omits has its default again.

Example:
  vm checkpoint t1.1
  vm checkpoint t1.1 --every 5m --keep 2 --compress
  vm checkpoint t1.1 --every 0s";

pub(super) const STOP_HELP: &str = "\
Makes a checkpoint as `checkpoint` does, and ends the application with it.
`restart` restarts the application, in this machine or in another one. If the
checkpoint fails, the application runs on, and the reason is shown.

Example:
  vm stop --checkpoint t1.1
  vm restart t1.1";

pub(super) const SUSPEND_HELP: &str = "\
The application ends with a checkpoint, as by `stop --checkpoint`. If the
checkpoint fails, the application runs on, and the reason is shown. The machine
remembers that the application is suspended, and since when: `ps` shows it, and
`resume` restarts it from exactly that checkpoint. Its `vm run` waits, and says
so.

With --for the application ends for good after that time, counted from this
command: it cannot be resumed any more, and its checkpoint stays in the store,
for `restart` in this machine or in another one. `kill`, and Ctrl-C at its `vm
run`, do the same at once; that `vm run` then exits with 75.

A task other than the master is suspended alone, until `resume` resumes it, and
has no process meanwhile: its image is in the store of its host. The other tasks
run on, and messages to it wait; no checkpoint of the application is made before
the task is resumed. If its host is lost, the task is lost too. If its host
drains and all hosts share the store, another host keeps the task.

Example:
  vm suspend t1.1
  vm suspend t1.3
  vm suspend t1.1 --for 2h
  vm resume t1.1";

pub(super) const RESUME_HELP: &str = "\
All tasks of the application resume from their images, each on its former host
if that is in the machine and has room, else on another one. The output appears
at the `vm run` that waits for it, else in the logs of the daemons. If the
application cannot be resumed, it stays suspended, and the reason is shown;
`restart --from` restarts it from another checkpoint.

A task that is suspended alone resumes on HOST or, without HOST, on the host
that has its image. If that host drains, it resumes on another one with room, if
there is one.

Example:
  vm resume t1.1
  vm resume t1.3 node2";

pub(super) const RESTART_HELP: &str = "\
All tasks of the application are restored, each on its former host if that is in
the machine and has room, else on another one: with their tids, groups, unread
messages, and the in-transit messages between them. Either all of them run, or
none, and the reason is shown.

APPLICATION is the master's tid, or the application's name in the store as
`checkpoints` shows it (a tid alone is one of this machine). It can be omitted
if only one application is in the store. To restart an application in another
machine, give the daemons there the same store, or a copy of the folder, and
use the name.

This console shows the output of the application until its master ends, as `run`
does; the application gets no input from it. With --detach, the output goes to
the logs of the daemons.

Regular files that the tasks had open for writing are rolled back: a file that
has only grown is truncated, another one is written anew from the checkpoint's
copy (up to 64 MiB a task). With --keep-files they are used as they are; a file
that has not only grown then prevents the restart.

Exit code: as of `run`; 1 if the application cannot be restarted. If this
command is interrupted before the application runs, the application ends when it
would begin; with --detach it runs all the same.

Example:
  vm restart
  vm restart t1.1 --from g0-e2
  vm restart 92dc2d-t1.1 --detach";

pub(super) const CHECKPOINTS_HELP: &str = "\
Of each checkpoint: when it was made (MADE), how many tasks are in it (TASKS),
how large their images are (MB), how much of them is stored (STORED: an
increment is smaller), how long the checkpoint took in all (TOOK), the freeze
time of the tasks (FROZEN), and of an increment the base (BASE). A damaged
checkpoint is listed with the reason. If the store has a bucket (see `store`):
whether the checkpoint is there as well, and why the last copy failed.

Exit code: 0, or 1 if a checkpoint is damaged, or if the application of
`--remove` has none.

Example:
  vm checkpoints
  vm checkpoints --remove 92dc2d-t1.1
  vm checkpoints --store /shared/store --verify";

pub(super) const STORE_HELP: &str = "\
The bucket is that of `vmd --store-bucket`: the daemon copies each checkpoint to
it, and `restart` and `run --resume-or-start` fetch from it what the folder has
lost. `push` copies now, and returns when all is in the bucket: use it after
`stop`, before a folder that does not outlive its host is removed. `pull`
fetches now. Credentials are taken from the environment, as AWS_ACCESS_KEY_ID
and AWS_SECRET_ACCESS_KEY; see docs/store.md.

Exit code: 0; 1 if it failed, or a checkpoint is damaged.

Example:
  vm stop --checkpoint t1.1 && vm store push
  vm store list --store /new/store --bucket s3://saved/heat
  vm store pull 92dc2d-t1.1 --store /new/store --bucket s3://saved/heat";

pub(super) const DRAIN_HELP: &str = "\
No task is started on the host or moved to it any more. Its tasks move to other
hosts, four at a time, each as by `move`; if there are enough hosts, other hosts
lead and vote. A task that cannot be moved stays, and is shown with the reason.
After that, `delete` ends the host and loses nothing.

The host stays draining until --undo or delete, also when this command is
interrupted. If no other host takes tasks, the drain is refused.

With --suspend the application of each task that cannot be moved, for whatever
reason, is suspended, also if no other host takes tasks: see `suspend`. It is
resumed automatically when there is room: when a host joins, when this host
takes tasks again, or when other tasks end. With --checkpoint a checkpoint of
each application with a task there is made before any task moves; if one fails,
the drain is refused, and the reason is shown.

Exit code: 0 if all tasks have left, 1 if not.

Example:
  vm drain node2 && vm delete node2
  vm drain --checkpoint --suspend node2
  vm drain --undo node2";

pub(super) const CHECK_HELP: &str = "\
The reply contains what can be known without asking the task. Its own sockets,
child processes and files are seen only by `move`, which then leaves the task on
its host.

Exit code: 0 if the task can be moved, 1 if not; then each reason is one line.

Example:
  vm check t2.5";

pub(super) const CONF_HELP: &str = "\
The star marks the host whose daemon replied. ROLE: the leader proposes the
entries of the log, voters confirm them, followers receive them. With three or
four hosts any one may be lost, with five or more any two. With --all, also the
last hosts that left in order (gone) or were lost (dead).

Example:
  vm conf";

pub(super) const ADD_HELP: &str = "\
The launcher is a command with places to fill in: {host} the host as given,
{name} the same without the part before an @, {join} the address to join. It is
split into words as a shell does, but no shell runs it. The machine's secret is
written to its standard input. It must start a daemon that goes into the
background. The hosts are started at the same time. Default:
  ssh {host} vmd --detach --join {join} --name {name} --secret-stdin

Example:
  vm add node1 node2
  vm add --launcher 'ssh {host} /opt/vm/vmd --detach --join {join} \\
      --name {name} --secret-stdin --path /opt/programs' node3";

pub(super) const DELETE_HELP: &str = "\
Tasks there get SIGTERM and, two seconds later, SIGKILL; messages that they had
sent still arrive. If it is the machine's only host, the machine ends.

Example:
  vm delete node2";

pub(super) const HALT_HELP: &str = "\
Returns when this host's daemon has ended. Without a terminal as standard input
it does not ask first.

Example:
  vm halt --yes";

pub(super) const IMAGE_HELP: &str = "\
An image is a file to which a process saved itself, see docs/checkpoint.md.

`save` tells a process that runs with LD_PRELOAD=PATH/libvm_image.so to save
itself, waits for the image, and gives it the name FILE. A process that the
signal for this would end is recognised, and gets none. Until the image is whole
it is a new file beside FILE, which is removed if the save fails.

`info` reads the heads of the image, and the files that the process had open; it
skips the memory, so it is quick, and does not show damage there.
`verify` reads the whole image, and shows what a host has to have: processor,
user, files (`needs`), and the files of the program and its libraries (`wants`;
if one is missing, the process is restored without its program's name).
`run` reads the whole image too (unless FILE is a pipe), and starts nothing if
the image is damaged, if this host lacks what the process needs, or if the
process's files have changed. Otherwise it becomes the process; at the prompt,
the prompt waits for the process. A file that has only grown, and that the
process writes, is used as it is. With --roll-back-files, each file that the
process had open for writing is rolled back: truncated, or written anew from the
image's copy. With --map OLD=NEW the process's files and working directory below
OLD are looked for below NEW.

Exit code: 1 if the image is not whole or cannot be read; that of `run` is the
process's own, as if it were local, or 124 if the process cannot be restored
here, 125 if the restored process could not resume.

Example:
  LD_PRELOAD=libvm_image.so ./program & vm image save $! saved.img
  vm image save --exit --carry 4711 saved.img
  vm image info saved.img
  vm image verify saved.img && vm image run saved.img
  vm --json image info saved.img | jq -r .reasons[]
  zstd -dc saved.img.zst | vm image run -";

pub(super) const VERSION_HELP: &str = "\
Works without a daemon; it starts none.

Example:
  vm version";

pub(super) const HELP_HELP: &str = "\
Example:
  vm help run
  vm help image verify";

pub(super) const QUIT_HELP: &str = "\
Ctrl-D does the same.

Example:
  vm> quit";

pub(super) const ECHO_HELP: &str = "\
With --json before the command: one line with the key `echo`.

Example:
  echo now on two hosts; conf";

pub(super) const SOURCE_HELP: &str = "\
A line holds commands as at the prompt, several with `;` between them. What
follows a `#` at the beginning of a word is a comment. Aliases that the file
sets hold afterwards. The prompt begins with the commands in ~/.vmrc.

Example:
  source nodes.vm
  vm source nodes.vm";

pub(super) const ALIAS_HELP: &str = "\
An alias is replaced where a command begins, and once: `alias ps ps --json` is
no circle. It holds until this console ends; put it into ~/.vmrc to keep it.

Example:
  alias w ps
  alias go run --checkpoint-every 10m
  go ./simulate
  alias";

pub(super) const UNALIAS_HELP: &str = "\
Example:
  unalias w go";
