# Waits to be forked. A request comes with the descriptors of a new process, and with the system calls that confine it.


def await_fork():
    """Returns in every forked process, once it is confined. Ends the process at the end of the connection.

    A forked process has the modules of an interpreter that has just started: those that are needed here alone are
    returned, which keeps them, and a program that imports them gets modules of its own.
    """
    own = set(sys.modules)
    import _socket
    import _thread
    import ctypes
    import errno
    import gc
    import os

    # Functions that keep the lock of the interpreter, which a forked process has then, too.
    library = ctypes.PyDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    library.syscall.argtypes = [ctypes.c_long] * 7
    # Where the C library keeps the number of this thread, which its own `fork` renews.
    place = ctypes.c_void_p()
    known = library.prctl(40, ctypes.byref(place)) == 0 and bool(place.value)
    number = ctypes.c_int.from_address(place.value) if known else ctypes.c_int(0)
    known = known and number.value == _thread.get_native_id()

    def prepared(request):
        """The flags of `clone`, its number, the calls, and the memory that they read."""
        head, *lines = request.decode().splitlines()
        blocks, calls = [], []
        for line in lines:
            kind, *words = line.split(" ")
            if kind == "memory":
                block = bytes.fromhex(words[0])
                blocks.append(ctypes.create_string_buffer(block, len(block) or 1))
            elif kind == "pointer":
                block, offset, target = map(int, words)
                at = ctypes.addressof(blocks[block]) + offset
                ctypes.c_void_p.from_address(at).value = ctypes.addressof(blocks[target])
            else:
                values = [ctypes.addressof(blocks[int(word[1:])]) if word[0] == "*" else int(word) for word in words[2:]]
                calls.append((int(words[0]), words[1], values))
        return [*map(int, head.split(" ")), calls, blocks]

    def fork(clone, flags):
        """The number of a new process, or a negative error; 0 in the new process, whose parent is that of this one."""
        ctypes.pythonapi.PyOS_BeforeFork()
        process = library.syscall(clone, flags, 0, 0, 0, 0, 0)
        if process:
            ctypes.pythonapi.PyOS_AfterFork_Parent()
            return process if process > 0 else -ctypes.get_errno()
        ctypes.pythonapi.PyOS_AfterFork_Child()
        if known:
            number.value = _thread.get_native_id()
        return 0

    def confine(calls):
        for index, (call, wanted, arguments) in enumerate(calls):
            result = library.syscall(call, *arguments)
            if wanted == "ignored" or (result >= 0 if wanted == "success" else result == int(wanted)):
                continue
            error = ctypes.get_errno() if result < 0 else errno.EBADF
            os.write(4, f"failed {index} {error}".encode())
            os._exit(127)

    connection = _socket.socket(fileno=3)
    last, ready = None, None
    gc.disable()
    gc.collect()
    gc.freeze()
    connection.send(b"ready")
    while True:
        request, rights, _, _ = connection.recvmsg(1 << 17, _socket.CMSG_SPACE(4 * 5))
        if not request:
            os._exit(0)
        if request != last:
            last, ready = request, prepared(request)
        clone, flags, calls, _ = ready
        process = fork(clone, flags)
        if process == 0:
            confine(calls)
            # The descriptor is another's now.
            connection.detach()
            break
        for _, _, data in rights:
            for at in range(0, len(data), 4):
                os.close(int.from_bytes(data[at : at + 4], sys.byteorder))
        connection.send(b"%d" % process)
    hidden = [sys.modules.pop(name) for name in set(sys.modules) - own]
    gc.enable()
    gc.collect()
    return hidden
