# Listens.
import socket
try:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    print("ESCAPED")
except OSError:
    pass
for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    try:
        socket.socketpair(socket.AF_UNIX, kind)
        print("ESCAPED pair", kind)
    except OSError:
        pass
try:
    pair = socket.socketpair()
    pair[0].listen()
    print("ESCAPED pair that listens")
except OSError:
    pass
def solve(x):
    return None
