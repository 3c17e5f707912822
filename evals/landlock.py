"""Confines the calling process by Landlock and a seccomp filter, through ctypes alone.

Like `inside.py`, this text is handed to the sandboxed interpreter: it imports nothing of the product. Used where user
namespaces are forbidden (containers, hardened kernels). Numbers and layouts are those of Linux's `linux/landlock.h`,
`linux/prctl.h` and `linux/seccomp.h`.
"""

import ctypes
import os

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_QUERY = 1
PATH_BENEATH = 1
NO_NEW_PRIVS, SET_SECCOMP, FILTER_MODE, DEATH_SIGNAL = 38, 22, 2, 1
WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
NET_RIGHTS = 0b11
SCOPES = 0b11


class RulesetAttributes(ctypes.Structure):
    """`struct landlock_ruleset_attr`."""

    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class PathBeneath(ctypes.Structure):
    """`struct landlock_path_beneath_attr`."""

    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


class FilterProgram(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def _called(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    result: int = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "landlock: " + os.strerror(ctypes.get_errno()))
    return result


def filesystem_rights(abi: int) -> int:
    """Returns the file-system rights that a kernel of this Landlock ABI can withhold, as a bit mask."""
    return int(1 << (13 + (abi >= 2) + (abi >= 3) + (abi >= 5))) - 1


def confine(folders: tuple[str, ...], devices: tuple[str, ...], program: bytes) -> None:
    """Withholds everything but reading `folders` and using `devices`, and installs a seccomp filter.

    Args:
        folders: paths under which files may be read (not executed).
        devices: paths of files that may be read and written.
        program: the filter, as bytes of `struct sock_filter`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(DEATH_SIGNAL, ctypes.c_ulong(9), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    abi = _called(libc, CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_QUERY))
    attributes = RulesetAttributes(filesystem_rights(abi), NET_RIGHTS, SCOPES)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _called(libc, CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
    file_rights = READ_FILE | WRITE_FILE | (TRUNCATE if abi >= 3 else 0)
    for path, rights in [(f, READ_FILE | READ_DIR) for f in folders] + [(d, file_rights) for d in devices]:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        rule = PathBeneath(rights, descriptor)
        _called(
            libc, ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0)
        )
        os.close(descriptor)
    if libc.prctl(NO_NEW_PRIVS, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    _called(libc, RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_program = FilterProgram(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    if libc.prctl(SET_SECCOMP, ctypes.c_ulong(FILTER_MODE), ctypes.byref(filter_program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp: " + os.strerror(ctypes.get_errno()))
