"""The seccomp filter of the sandbox: which system calls model-written code may not make.

Compiled once a process by libseccomp into a few hundred bytes of BPF; nothing compiled is kept on disk.
"""

from __future__ import annotations

import errno
import functools
import tempfile

CLONE_THREAD = 0x00010000

_REFUSED = (
    # another process
    "fork", "vfork", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp",
    "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "kill", "tkill", "tgkill", "rt_sigqueueinfo",
    "rt_tgsigqueueinfo", "setpriority", "sched_setscheduler", "sched_setparam", "sched_setattr",
    "sched_setaffinity", "ioprio_set", "migrate_pages", "move_pages",
    # the network, and any socket but a pair of its own
    "socket",
    # memory and objects that outlive the process or escape its limits
    "memfd_create", "memfd_secret", "shmget", "shmat", "shmctl", "msgget", "semget", "mq_open",
    # namespaces, mounts, the kernel
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "fanotify_init", "name_to_handle_at", "open_by_handle_at",
    "personality", "syslog", "acct", "quotactl", "swapon", "swapoff", "reboot", "init_module", "finit_module",
    "delete_module", "kexec_load", "kexec_file_load", "landlock_create_ruleset",
)  # fmt: skip


class SeccompMissingError(OSError):
    """The library libseccomp cannot be used; raised by `compiled`, a reason why a level does not work."""


@functools.cache
def compiled(*, may_execute: bool) -> bytes:
    """Returns the filter as `struct sock_filter` bytes.

    Args:
        may_execute: whether `execve` is allowed: where the filter is set before the interpreter is started, it must be.

    Raises:
        SeccompMissingError: libseccomp is not installed, or is none that can be used.
    """
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        raise SeccompMissingError(f"seccomp: {error} (apt install libseccomp2)") from error
    rules = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)
    refuse = pyseccomp.ERRNO(errno.EPERM)
    names = _REFUSED if may_execute else (*_REFUSED, "execve", "execveat")
    for name in names:
        try:
            number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
        except ValueError:
            continue  # a call that this architecture or this libseccomp does not know
        if number >= 0:
            rules.add_rule(refuse, name)
    rules.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_THREAD, 0))
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    rules.add_rule(refuse, "prlimit64", pyseccomp.Arg(0, pyseccomp.NE, 0))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
