//! The long texts of `vm help COMMAND`.

pub(super) const TOP_HELP: &str = "\
Exit codes:
  0    done
  1    the machine refused or failed: the message says what and why
  2    the command line is wrong
  3    no daemon could be reached, or the connection to it was lost
  130  interrupted
  `run` ends with the exit code of its program, or 128 + N if signal N ended it;
  `vm help run` has its other ends. `restart` does too, without --detach.
  `image run` ends as the process that it brought back does; 124 if it cannot
  be brought back here, 125 if it could not go on.

Environment:
  VM_DIR       the daemon's folder, unless --dir is given
  VM_LAUNCHER  how `add` starts a daemon on another host
  VM_HISTORY   file of the prompt's history (default ~/.vm_history)

Example:
  vm run ./program arguments
  vm add node1 node2
  vm --json conf";

pub(super) const RUN_HELP: &str = "\
The program becomes a child of this host's daemon, the master of a new
application. Its output, and that of all tasks it spawns, appears here; lines of
others than the master begin with their tid. Standard input and the signals
INT, QUIT, TERM, HUP, USR1, USR2 and TSTP (as STOP; then CONT) go to the master.
If standard input and output are both terminals, it gets a terminal too. It sees
this console's environment. If the console is lost, the master gets SIGHUP.

With --json, each event is one line: started, output, ended.

Exit code: the program's, as if it were local, 128 + N if signal N ended it; or
  2    the command line is wrong
  75   it ended with a checkpoint, and can go on later
  122  it runs on, but this host leaves the machine
  123  the machine refused to start it
  124  its checkpoint cannot be brought back
  125  the machine failed: no daemon, or a lost one
  126  the program is there and cannot be executed
  127  there is no such program
  130  interrupted before the program was started
  141  nobody reads the output any more

With --resume-or-start the same command, given again, goes on where the last one
was stopped (`vm stop --checkpoint`, or with --checkpoint-every by whatever
ended the machine): a job of a batch system is submitted again as it was. Which
application is meant follows from the name of the program: give each job a store
of its own (`vmd --store`). Arguments are those of the first time; how often
checkpoints are made, and how, follows these options if there are any.

When a host is lost, an application that has a checkpoint goes back to it on the
hosts that are left, and goes on; --recover says when else, or never.

Example:
  vm run --env THREADS=2 ./simulate --steps 1000 < input > output
  vm run --resume-or-start --checkpoint-every 10m ./simulate --steps 1000";

pub(super) const SPAWN_HELP: &str = "\
Prints the tids. The programs run on when the console ends; their output goes to
the log of the daemon on their host. They start in the console's folder, which
has to be there on their hosts, or in that of --cwd: below the --work-dir of its
daemon a program finds its files again when it is moved. If only some could be
started, the error names them, and why the others were not.

Example:
  vm spawn -n 4 --on node1,node2 ./worker --verbose";

pub(super) const PS_HELP: &str = "\
STATE is that of the process, as ps(1) has it: R running, S sleeping, D waiting
for the disk, T stopped, Z ended. CPU is user and system time. A dash: the
task's host did not answer in time. Of a task that has moved, CPU is that of
its process here.

Example:
  vm ps
  vm ps t1.3
  vm --json ps | jq -r .tasks[].tid";

pub(super) const KILL_HELP: &str = "\
If the task is the master of an application, the rest of the application is
ended too.

Example:
  vm kill t2.5 t2.6";

pub(super) const SIG_HELP: &str = "\
Names may be given with or without SIG, in any case; RTMIN+3 and RTMAX-1 are
known too. 0, with which kill(1) asks whether a process lives, is refused: see
`ps`.

Example:
  vm sig TERM t2.5
  vm sig 10 t2.5 t2.6";

pub(super) const MOVE_HELP: &str = "\
The program knows nothing of it: its memory, threads, open files and messages go
along, and all other tasks go on. If anything is in the way, the task runs on
where it was, and the reason is told. A move goes on when this command is
interrupted. Only programs that use vmlib can be moved.

Example:
  vm move t2.5 nodeB
  vm move t2.5 h3
  vm move t2.5
  vm move t2.5 nodeB --no-precopy";

pub(super) const CHECKPOINT_HELP: &str = "\
All tasks stand still for some milliseconds, and go on while copies of them are
written; what is on its way between them is neither lost nor doubled. Either all
of it is in the store (see `vmd --store`), or nothing, and the reason is told.
The program knows nothing of it. Only programs that use vmlib can be saved.

With --every it does nothing now, but from then on a checkpoint is made so long
after the end of each, by the machine itself, as long as the application runs
and also after a restart; what is in the way of one is in the log of a daemon.
Each such command says all of it anew: what it leaves out is as at the start.

Example:
  vm checkpoint t1.1
  vm checkpoint t1.1 --every 5m --keep 2 --compress
  vm checkpoint t1.1 --every 0s";

pub(super) const STOP_HELP: &str = "\
The application is saved like by `checkpoint`, and ends with that: `restart`
brings it back, in this machine or in another one. If it cannot be saved, it
runs on, and the reason is told.

Example:
  vm stop --checkpoint t1.1
  vm restart t1.1";

pub(super) const SUSPEND_HELP: &str = "\
The application is saved as by `stop --checkpoint`, and ends with that; if it
cannot be saved, it runs on, and the reason is told. The machine remembers that
it is suspended, and since when: `ps` shows it, `resume` brings it back from
exactly that checkpoint. A `vm run` that it belongs to waits, and is told.

With --for it has ended after that time, counted from this command: it is not
to be resumed any more, and its checkpoint stays in the store, for `restart` in
this machine or in another one. `kill`, and Ctrl-C at its `vm run`, do the same
at once; that `vm run` then exits with 75.

Another task than the master is suspended alone, until `resume` brings it back,
and has no process meanwhile: its image is in the store of its host. The other
tasks run on, and what they send to it waits; no checkpoint of the application
is made before it is resumed. If its host is lost, so is the task; if its
host drains and all hosts share the store, another one keeps it.

Example:
  vm suspend t1.1
  vm suspend t1.3
  vm suspend t1.1 --for 2h
  vm resume t1.1";

pub(super) const RESUME_HELP: &str = "\
All tasks of the application go on where they were saved, each on the host where
it was if that is there and has room, else on another one. Its output appears at
the `vm run` that waits for it, else in the logs of the daemons. If it cannot be
brought back, it stays suspended, and the reason is told; `restart --from`
brings it back from another checkpoint.

A task that is suspended alone goes on where it was stopped, on HOST or, without
one, on the host that it is on; if that drains, on another one with room, if
there is one.

Example:
  vm resume t1.1
  vm resume t1.3 node2";

pub(super) const RESTART_HELP: &str = "\
All tasks of the application go on where they were saved, each on the host where
it was if that is there and has room, else on another one: with their tids,
groups, unread messages, and what was on its way between them. Either all of
them run, or none, and the reason is told.

APPLICATION is the master's tid, or its name in the store as `checkpoints` shows
it (a master alone is one of this machine); it can be left out if there is but
one in the store. To bring one back in another machine, give its daemons the
same store, or a copy of the folder, and say its name there.

This console shows what the application writes until its master ends, as `run`
does; what is typed does not reach it. With --detach, what it writes goes to the
logs of the daemons.

Regular files that the tasks had open for writing become what they were at the
checkpoint: one that has only grown is cut back, another one is written anew of
the checkpoint's copy (up to 64 MiB a task). With --keep-files they are used as
they are; one that has not only grown is then in the way.

Exit code: as of `run`; 1 if it cannot be brought back. When this command is
interrupted before the application runs, that ends when it would begin; with
--detach it runs all the same.

Example:
  vm restart
  vm restart t1.1 --from g0-e2
  vm restart 92dc2d-t1.1 --detach";

pub(super) const CHECKPOINTS_HELP: &str = "\
Of each checkpoint: when it was made, how many tasks are in it, how large they
were (MB), what the store has of it (STORED: an increment is smaller), how long
it took in all (TOOK), how long the tasks stood meanwhile (STOOD), and for one
of which only the changes are stored, since which other one (BASE). One that is
not whole is listed with the reason. If the store has a bucket (see `store`):
whether it is there as well, and why the last copying failed.

Exit code: 0, or 1 if one is damaged, or of the application of `--remove` there
is none.

Example:
  vm checkpoints
  vm checkpoints --remove 92dc2d-t1.1
  vm checkpoints --store /shared/store --verify";

pub(super) const STORE_HELP: &str = "\
The bucket is that of `vmd --store-bucket`: the daemon copies each checkpoint
there by itself, and `restart` and `run --resume-or-start` fetch from it what
the folder has lost. `push` does the first at once and returns when all is
there: after `stop`, before a folder that does not outlive its host is gone.
`pull` does the second. Credentials are taken from the environment, as
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; see docs/store.md.

Exit code: 0; 1 if it failed, or a checkpoint is damaged.

Example:
  vm stop --checkpoint t1.1 && vm store push
  vm store list --store /new/store --bucket s3://saved/heat
  vm store pull 92dc2d-t1.1 --store /new/store --bucket s3://saved/heat";

pub(super) const DRAIN_HELP: &str = "\
No task is started there or moved there any more, and those that are there move
to other hosts, four at a time, each as by `move`; lead and vote go to others
too if there are enough hosts. A task that cannot be moved stays, and is named
with its reason. Then `delete` ends the host with nothing lost.

The host goes on draining until --undo or delete, also when this command is
interrupted. With no other host that takes tasks nothing is begun.

With --suspend the application of each task that cannot leave, for whatever
reason, is suspended, also if no other host takes tasks: see `suspend`. It is
resumed by itself when there is room: when a host joins, this one takes tasks
again, or other tasks end. With --checkpoint each application with a task there
is saved before anything is moved; if one cannot be, nothing is begun, and the
reason is told.

Exit code: 0 if all have left, 1 if not.

Example:
  vm drain node2 && vm delete node2
  vm drain --checkpoint --suspend node2
  vm drain --undo node2";

pub(super) const CHECK_HELP: &str = "\
Told is what can be known without asking the task. Its own sockets, child
processes and files are seen only by 'move', which then leaves it where it is.

Exit code: 0 if it could be moved, 1 if not; then each reason is one line.

Example:
  vm check t2.5";

pub(super) const CONF_HELP: &str = "\
The star marks the host whose daemon was asked. ROLE: the leader orders the log
of what the machine agreed on, voters confirm it, followers read it. With three
or four hosts any one may die, with five or more any two. With --all, also the
last hosts that left in order (gone) or were lost (dead).

Example:
  vm conf";

pub(super) const ADD_HELP: &str = "\
The launcher is a command with places to fill in: {host} the host as given,
{name} the same without what is before an @, {join} the address to join. It is
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
An image is a file that a process saved itself to, see docs/checkpoint.md.

`save` asks a process that runs with LD_PRELOAD=PATH/libvm_image.so, waits
for its image, and gives it the name FILE. It first looks whether the process
would answer: one that the signal would end is not sent it. Until the image is
whole it is in a new file beside FILE, which is removed if there is none.

`info` reads the heads of the image, and the files that the process had open;
it passes over the memory, so it is quick, and damage there does not show.
`verify` reads everything, and says what a host has to have: processor, user,
files (`needs`), and the files of the program and its libraries (`wants`; if one
lacks, the process comes back all the same, but not its program's name).
`run` reads everything too (unless FILE is a pipe), and starts
nothing if the image is damaged, if this host lacks what the process needs, or
if its files have changed. Otherwise it becomes the process; at the prompt, the
prompt waits for it. A file that has only grown, and that the process writes, is
used as it is. With --roll-back-files, each file that it had open for writing
becomes what it was: cut back, or written anew of what the image has of it.
With --map OLD=NEW its files and its working folder below OLD are looked for
below NEW.

Exit code: 1 if the image is not whole or cannot be read; that of `run` is the
process's own, as if it were local, or 124 if it cannot be brought back here,
125 if it could not go on.

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
